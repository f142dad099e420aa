-- How a semaphore is kept: Redisson's RPermitExpirableSemaphore, see redisson_permits. This is the part `kind`, see
-- redisson_mutex.
--: include redisson_permits
-- The kind is the semaphore's size, as soon as that is known.
local own_kind, CHANNEL, mode, payload = 1, 'redisson_sc:', '', '0'
local owners_of, downgrade = owners_of_permits, nil
-- How many permits the placed claim takes, and the semaphore's size.
local take, of
-- The permits of the last owner that `holds` looked at, and the end of their lease.
local taken, ends
-- How many permits can be taken, nil if the key is missing; how many this call has freed, and how many a cooldown has
-- taken.
local available, freed, cooling = nil, 0, 0

local function holds(owner)
    use_semaphore()
    taken, ends = permits_of(owner)
    return ends and ends > now_ms
end

local function left_of(owner)
    return ends - now_ms - 1
end

-- Sets the lease of permits, one by one: an eviction may free more than Lua passes in a call. Returns how many of them are new.
local function set_lease(owner, ids, lease)
    local new, ends = 0, now_ms + lease + 1
    redis.call('ZADD', holders, ends, owner)
    redis.call('PEXPIREAT', holders, redis.call('ZREVRANGE', holders, 0, 0, 'WITHSCORES')[2] - 1)
    for _, id in ipairs(ids) do
        new = new + redis.call('ZADD', permits, ends, id)
    end
    return new
end

local function extend(owner, lease)
    -- A server with full memory permits ZADD only after the script has changed something, as PEXPIRE does here.
    redis.call('PEXPIRE', holders, lease)
    set_lease(owner, taken, lease)
end

-- For the cooldown, puts a permit that belongs to no client in the place of each freed one, which no claim can then take.
local function cool_down(cooldown)
    local ids = {}
    for i = 1, freed do
        ids[i] = COOLDOWN_PERMIT .. struct.pack('>I4I4', now % 2 ^ 32, i)
    end
    freed, cooling = 0, set_lease(COOLDOWN, ids, cooldown)
end

local function hold(owner, lease)
    if owner == COOLDOWN then
        return cool_down(lease)
    end
    local ids, prefix = {}, prefix_of(owner)
    for number = 1, take do
        ids[number] = permit(prefix, number - 1, number == take)
    end
    if not available then
        available = of - redis.call('ZCARD', permits)
        redis.call('SET', name, available, 'PXAT', MADE_BY_US)
    end
    local is_first = available == of
    local added = set_lease(owner, ids, lease)
    available = redis.call('DECRBY', name, added)
    if is_first then
        -- The first permit creates the zset `permits`. As in Redisson, this zset expires when the string `name` does.
        local left = redis.call('PTTL', name)
        if left > 0 then
            redis.call('PEXPIRE', permits, left)
        end
    end
    payload = math.max(available, 0)
end

local function is_open()
    return available > 0
end

local function last_left()
    return redis.call('PTTL', holders)
end

-- Removes members whose time has come from a zset, at most MAX_TAKE. Returns how many.
local function remove_ended(zset)
    local ended = redis.call('ZRANGEBYSCORE', zset, '-inf', now_ms, 'LIMIT', 0, MAX_TAKE)
    if #ended > 0 then
        redis.call('ZREM', zset, unpack(ended))
    end
    return #ended
end

-- A permit whose lease has ended is not free until a script has removed it and raised the number of free ones in the same
-- step. That wakes waiters, as in Redisson.
local function reclaim()
    local ended = remove_ended(permits)
    if ended > 0 then
        remove_ended(holders)
        available = available and redis.call('INCRBY', name, ended)
    end
    if ended > 0 and (available or 0) > 0 then
        redis.call('PUBLISH', CHANNEL .. tag, available)
    end
end

-- As `look` in redisson_mutex. A semaphore whose size is not the claim's counts as a lock of another kind.
local function look(owner)
    take, of = string.match(mode, '(%d+)/(%d+)')
    take, of = tonumber(take), tonumber(of)
    own_kind = of
    local found = redis.pcall('GET', name)
    available = tonumber(found or nil)
    if holds(owner) then
        return true, -2
    elseif type(found) == 'table' then
        found = redis.call('HMGET', name, 'mode', COOLDOWN, COOLDOWN .. ':write')
        local cools = (found[2] or found[3]) and redis.call('HLEN', name) == (found[1] and 2 or 1)
        return false, redis.call('PTTL', name), not cools and (found[1] and -1 or 0), cools
    end
    local is_number = found and string.find(found, '^%-?%d+$')
    if found and not (is_number and available + redis.call('ZCARD', permits) == of) then
        local size, cooldown = vacate()
        if size ~= 0 then
            return false, size and 0 or -1, size
        elseif cooldown then
            redis.call('ZADD', holders, now_ms + cooldown, COOLDOWN)
            redis.call('PEXPIRE', holders, cooldown)
        end
        available = nil
    end
    reclaim()
    local cools = redis.call('ZSCORE', holders, COOLDOWN)
    if cools and tonumber(cools) > now_ms then
        return false, cools - now_ms - 1, nil, true
    elseif (available or of - redis.call('ZCARD', permits)) >= take then
        return false, -2
    end
    return false, redis.call('ZRANGE', permits, 0, 0, 'WITHSCORES')[2] - now_ms - 1
end

local function drop(owner)
    taken = permits_of(owner)
    redis.call('ZREM', permits, unpack(taken))
    redis.call('ZREM', holders, owner)
    freed = freed + #taken
    return true
end

-- Makes the permits that `drop` freed available again. Puts into `payload` how many can be taken: Redisson wakes as many waiters,
-- and fails at a negative number. Returns whether waiters are to be woken.
local function settle()
    available = tonumber(redis.pcall('GET', name) or nil)
    available = available and redis.call('INCRBY', name, freed)
    payload = cooling > 0 and cooling or math.max(available or 0, 0)
    return payload > 0
end
