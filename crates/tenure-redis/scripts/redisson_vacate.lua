-- Finds out whether a string is a semaphore in use. Included in scripts that may meet one of another kind or size.
--
-- A semaphore that Redisson made keeps its size while no permit is taken, so it is always in use. One that we made is in
-- use only while a permit is taken. Ours expires in the year 2200, which tells it from Redisson's.
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
    -- The permit that ends last. If a cooldown has taken it, no claim holds a permit beyond the cooldown.
    local taken = redis.call('ZREVRANGEBYSCORE', permits, '+inf', '(' .. now_ms, 'LIMIT', 0, 1)[1]
    if taken and string.sub(taken, 1, 8) ~= 'cooldown' then
        return size
    end
    local ends = taken and redis.call('ZSCORE', permits, taken)
    redis.call('UNLINK', name, permits, holders)
    return 0, ends and ends - now_ms
end

-- As `vacate`, for a key that is to be a hash: its field `tenure:cooldown` then lasts for the rest of the cooldown.
local function vacate_for_hash()
    local size, cooldown = vacate()
    if cooldown then
        redis.call('HSET', name, 'tenure:cooldown', 1)
        redis.call('PEXPIRE', name, cooldown)
    end
    return size
end
