-- How a semaphore keeps its permits: Redisson's RPermitExpirableSemaphore. Included in scripts, which define `name`, `tag` and
-- `now_ms`.
--
-- A semaphore has these keys:
--   name      string: the number of permits that can be taken. It stays when none is taken, as in Redisson.
--   permits   zset: the permits that are taken, with the time (ms) when each one's lease ends. From then on a permit is
--             free, but the script that removes it must also raise the number in `name`. A permit is 16 bytes, random
--             ones in Redisson. Ours are 8 bytes of the client's UUID, 6 of the claim's number, and 2 for the permit's
--             number in its claim, counted from 0, with the highest bit set in the last permit. So a script that knows
--             an owner can find all its permits, and knows whether one is missing.
--   holders   zset: our owners that hold permits, with the end of each one's lease; during a cooldown also COOLDOWN with
--             its end. The key expires with its last member.
local COOLDOWN = 'tenure:cooldown'
-- What the 16 bytes of a permit begin with that a cooldown has taken.
local COOLDOWN_PERMIT = 'cooldown'
-- The most permits of a claim, and the most ended ones that a call removes. script.rs inserts the number.
local MAX_TAKE = MAX_PERMITS
-- The end (ms) that Redisson stores for a lease that never ends.
local PERMANENT = 922337203685477
local permits, holders

local function use_semaphore()
    permits, holders = tag .. ':timeout', 'tenure_holders:' .. tag
end

-- What the names of an owner's permits begin with.
local function prefix_of(owner)
    local high, low = string.sub(owner, 1, 8), string.sub(owner, 10, 13) .. string.sub(owner, 15, 18)
    return struct.pack('>I4I4I6', tonumber(high, 16), tonumber(low, 16), tonumber(string.sub(owner, 38)))
end

local function permit(prefix, number, is_last)
    return prefix .. struct.pack('>I2', is_last and number + 32768 or number)
end

local function in_hex(id)
    return (string.gsub(id, '.', function(byte)
        return string.format('%02x', string.byte(byte))
    end))
end

-- Returns the permits that an owner holds, and the end of its lease; nil as the end if some are missing. A permit
-- that is not ours stands for its own owner: `owner` is then the permit in hex.
local function permits_of(owner)
    if not string.find(owner, '-', 1, true) then
        local id = string.gsub(owner, '%x%x', function(digits)
            return string.char(tonumber(digits, 16))
        end)
        local ends = tonumber(redis.call('ZSCORE', permits, id) or nil)
        return ends and { id } or {}, ends
    end
    local prefix, found = prefix_of(owner), {}
    for number = 0, MAX_TAKE - 1 do
        local last, id = permit(prefix, number, true), permit(prefix, number, false)
        local ends = redis.call('ZSCORE', permits, last)
        found[number + 1] = ends and last or redis.call('ZSCORE', permits, id) and id or nil
        if ends or not found[number + 1] then
            return found, tonumber(ends or nil)
        end
    end
    return found, nil
end

-- Returns the owners, and for each one its mode (`TAKEN/SIZE`: number of its permits, size of the semaphore) and the
-- rest of its lease (ms).
local function owners_of_permits()
    use_semaphore()
    local owners, modes, left, shown = {}, {}, {}, {}
    local of = string.format('/%d', (tonumber(redis.pcall('GET', name) or nil) or 0) + redis.call('ZCARD', permits))
    local function add(owner, count, ends)
        owners[#owners + 1] = owner
        modes[owner], left[owner] = count .. of, ends < PERMANENT and ends - now_ms - 1 or -1
    end
    for _, owner in ipairs(redis.call('ZRANGEBYSCORE', holders, '(' .. now_ms, '+inf')) do
        local ids, ends = {}, nil
        if owner ~= COOLDOWN then
            ids, ends = permits_of(owner)
        end
        if ends and ends > now_ms then
            add(owner, #ids, ends)
        end
        for _, id in ipairs(ids) do
            shown[id] = true
        end
    end
    local taken = redis.call('ZRANGEBYSCORE', permits, '(' .. now_ms, '+inf', 'WITHSCORES')
    for i = 1, #taken, 2 do
        if not shown[taken[i]] and string.sub(taken[i], 1, 8) ~= COOLDOWN_PERMIT then
            add(in_hex(taken[i]), 1, tonumber(taken[i + 1]))
        end
    end
    return owners, modes, left
end
