-- Returns mutexes with their holders and waiters, and semaphores with their holders. Changes nothing.
--
-- Inputs     KEYS  the names of the locks
-- Atomicity  one script: each lock is shown as it was at one moment.
-- Reply      for each name: {name, time left (ms), holders, waiters}. A holder is {owner, its record or '', its client's
--            label or false if Redis has no record of the client}, a waiter {owner, its record or ''}. Names that are no
--            lock, or have no live holder and no live waiter, are left out. For a semaphore: {name, size, holders}, where a
--            holder has two more items, its number of permits and the time left (ms), -1 for a lease without end. If KEYS
--            has a single name, which exists and is no lock: {name}
-- Closes     no race: nothing is decided by the reply.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local reply = {}

local function describe_holder(tag, owner)
    local record = redis.call('GET', 'tenure_claim:' .. tag .. ':' .. owner)
    return { owner, record or '', redis.call('HGET', 'tenure_claims:' .. string.sub(owner, 1, 36), 'label') }
end

--: include redisson_permits
-- Returns the size and the holders of a semaphore; nil if the string is none. A permit of another client is a holder.
local function describe_semaphore(name, tag)
    use_semaphore(tag)
    local available, shown, holding = redis.call('GET', name), {}, {}
    if not string.find(available, '^%-?%d+$') then
        return nil
    end
    for _, owner in ipairs(redis.call('ZRANGEBYSCORE', holders, '(' .. now_ms, '+inf')) do
        local ids, ends = {}, nil
        if owner ~= BAR then
            ids, ends = permits_of(owner)
        end
        if ends and ends > now_ms then
            local holder = describe_holder(tag, owner)
            holder[4], holder[5] = #ids, ends - now_ms
            holding[#holding + 1] = holder
        end
        for _, id in ipairs(ids) do
            shown[id] = true
        end
    end
    local taken = redis.call('ZRANGEBYSCORE', permits, '(' .. now_ms, '+inf', 'WITHSCORES')
    for i = 1, #taken, 2 do
        local id, ends = taken[i], tonumber(taken[i + 1])
        if not shown[id] and string.sub(id, 1, #BAR) ~= BAR then
            holding[#holding + 1] = { in_hex(id), '', false, 1, ends < PERMANENT and ends - now_ms or -1 }
        end
    end
    return available + redis.call('ZCARD', permits), holding
end

--: include redisson_owners
for _, name in ipairs(KEYS) do
    local tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
    local queue, timeouts, waiters = 'redisson_lock_queue:' .. tag, 'redisson_lock_timeout:' .. tag, 'tenure_waiters:' .. tag
    local holders, waiting = {}, {}
    for _, owner in ipairs(owners_of(name)) do
        holders[#holders + 1] = describe_holder(tag, owner)
    end
    local size, holding
    if redis.call('TYPE', name).ok == 'string' then
        size, holding = describe_semaphore(name, tag)
    end
    local members = redis.pcall('LRANGE', queue, 0, -1)
    for _, member in ipairs(members.err and {} or members) do
        local ends = redis.call('ZSCORE', waiters, member)
        local score = ends or redis.call('ZSCORE', timeouts, member)
        if score and tonumber(score) >= now_ms then
            waiting[#waiting + 1] = { member, ends and redis.call('GET', 'tenure_claim:' .. tag .. ':' .. member) or '' }
        end
    end
    if size and #holding > 0 then
        reply[#reply + 1] = { name, size, holding }
    elseif size then
        -- A free semaphore.
    elseif #holders > 0 or #waiting > 0 then
        reply[#reply + 1] = { name, redis.call('PTTL', name), holders, waiting }
    elseif #KEYS == 1 and redis.call('EXISTS', name) == 1 and redis.pcall('HEXISTS', name, 'tenure:bar') ~= 1 then
        reply[1] = { name }
    end
end
return reply
