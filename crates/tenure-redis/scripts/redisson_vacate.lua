-- Finds out whether a string is a semaphore in use. Included in scripts that may meet one of another kind or size.
--
-- A semaphore that Redisson made keeps its size while no permit is taken. One that we made is ours to replace then. It
-- expires in the year 2200, which tells it from Redisson's.
local MADE_BY_US, CENTURY = 7258118400000, 3153600000000

-- Deletes the semaphore if it is not in use, and returns 0 and, in a cooldown, the ms until that ends. Otherwise returns the
-- semaphore's size; nil if the string is no semaphore.
local function vacate()
    local permits, holders, available = tag .. ':timeout', 'tenure_holders:' .. tag, redis.call('GET', name)
    local size = string.find(available, '^%-?%d+$') and available + redis.call('ZCARD', permits) or 0
    if size < 1 or size >= 2 ^ 32 then
        return nil
    elseif redis.call('PTTL', name) < CENTURY then
        return size
    end
    -- Permits that an eviction bars end first.
    local taken = redis.call('ZREVRANGEBYSCORE', permits, '+inf', '(' .. now_ms, 'LIMIT', 0, 1)[1]
    if taken and string.sub(taken, 1, 10) ~= 'tenure:bar' then
        return size
    end
    local ends = taken and redis.call('ZSCORE', permits, taken)
    redis.call('UNLINK', name, permits, holders)
    return 0, ends and ends - now_ms
end

-- As `vacate`, for a key that is to be a hash: its field `tenure:bar` then lasts for the rest of the cooldown.
local function vacate_for_hash()
    local size, cooldown = vacate()
    if cooldown then
        redis.call('HSET', name, 'tenure:bar', 1)
        redis.call('PEXPIRE', name, cooldown)
    end
    return size
end
