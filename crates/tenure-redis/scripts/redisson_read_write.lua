-- How a read-write lock is kept: Redisson's RReadWriteLock. This is the part `kind`, see redisson_mutex.
--
-- The hash has the field `mode` (`read` or `write`), and for each holder the number of its holds: a reader's field is its
-- owner, a writer's has `:write` behind it. A writer's lease is that of the hash. Each hold of a reader has a key of its own,
-- which expires with that hold's lease; the hash expires with the last of them, so that it exists only while a holder
-- lives. Our claims have one hold each; Redisson's threads may have several, and a writing thread may read too.
local own_kind, CHANNEL, mode, payload = -1, 'redisson_rwlock:', '', '0'
--: include redisson_owners

-- After a reader has left or its lease has become shorter: removes dead readers, and makes the hash expire with the last
-- lease. While a writer holds, its lease stays as it is. Returns whether the lock is now free.
local function settle()
    local last, fields = -2, redis.call('HGETALL', name)
    for i = 1, #fields, 2 do
        local field = fields[i]
        if string.find(field, ':write$') then
            return false
        elseif field ~= 'mode' then
            local left = read_left(field, fields[i + 1])
            if left < 0 then
                redis.call('HDEL', name, field)
            end
            last = math.max(last, left)
        end
    end
    if last < 0 then
        redis.call('DEL', name)
        return true
    end
    redis.call('PEXPIRE', name, last)
    return false
end

-- Returns whether the claim holds the lock, and sets `mode`. A reader whose lease has ended loses its field here.
local function holds(owner)
    local found = fields_of('mode', owner .. ':write', owner)
    if not found[1] then
        return false
    elseif found[2] then
        mode = 'W'
        return true
    elseif found[3] and read_left(owner, found[3]) < 0 then
        redis.call('HDEL', name, owner)
        return false
    elseif found[3] then
        mode = 'R'
    end
    return found[3]
end

local function left_of(owner)
    return redis.call('PTTL', mode == 'W' and name or hold_key(owner, 1))
end

local function extend(owner, lease)
    local left, before = redis.call('PTTL', name), left_of(owner)
    if mode == 'R' then
        redis.call('PEXPIRE', hold_key(owner, 1), lease)
    end
    if mode == 'W' or tonumber(lease) >= left then
        redis.call('PEXPIRE', name, lease)
    elseif tonumber(lease) < before then
        settle()
    end
end

local function hold(owner, lease)
    if mode == 'W' then
        redis.call('HSET', name, 'mode', 'write', owner .. ':write', 1)
    else
        redis.call('HSET', name, 'mode', 'read', owner, 1)
        redis.call('SET', hold_key(owner, 1), 1, 'PX', lease)
    end
    extend(owner, lease)
end

-- Makes a writer a reader, and wakes the readers that wait. A reader stays one.
local function downgrade(owner, lease)
    local was_writer = mode == 'W'
    mode = 'R'
    hold(owner, lease)
    if was_writer then
        redis.call('HDEL', name, owner .. ':write')
        redis.call('PEXPIRE', name, lease)
        local head = redis.call('LINDEX', 'redisson_lock_queue:' .. tag, 0)
        if head then
            redis.call('PUBLISH', 'redisson_lock__channel:' .. tag .. ':' .. head, '0')
        end
        redis.call('PUBLISH', CHANNEL .. tag, '1')
    end
end

local function is_open()
    return mode == 'R'
end

local function look(owner)
    if holds(owner) then
        return true, -2
    end
    local found = redis.call('HMGET', name, 'mode', 'tenure:cooldown', 'tenure:cooldown:write')
    local left = redis.call('PTTL', name)
    local cools = found[2] or found[3]
    if left ~= -2 and not found[1] then
        cools = cools and redis.call('HLEN', name) == 1
        return false, left, not cools and 0, cools
    elseif found[2] then
        -- A reader was evicted. Until the cooldown ends, no claim is granted, not even a reader's next to other readers.
        local cooldown_left = redis.call('PTTL', hold_key('tenure:cooldown', 1))
        cools = cooldown_left >= 0
        return false, mode == 'R' and cooldown_left or left, nil, cools
    end
    return false, mode == 'R' and found[1] == 'read' and -2 or left, nil, cools
end

local function drop(owner)
    local found = redis.call('HMGET', name, owner .. ':write', owner)
    redis.call('HDEL', name, owner .. ':write', owner)
    local held = found[1]
    for number = 1, math.min(tonumber(found[2]) or 0, 1000) do
        held = redis.call('DEL', hold_key(owner, number)) == 1 or held
    end
    mode, payload = found[1] and 'W' or 'R', found[1] and '1' or '0'
    return held and true or false
end
