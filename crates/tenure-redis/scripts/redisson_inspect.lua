-- Returns locks with their holders and waiters. Changes nothing.
--
-- Inputs     KEYS  the names of the locks
-- Atomicity  one script: each lock is shown as it was at one moment.
-- Reply      for each name: {name, holders, waiters}. A holder is {owner, its record or '', its client's label or false if
--            Redis has no record of the client, mode ('' in a mutex, 'R' a reader, 'W' a writer, in a semaphore TAKEN/SIZE), time left (ms)}, a waiter
--            {owner, its record or ''}. Names that are no lock, or have no live holder and no live waiter, are left out. If
--            KEYS has a single name, which exists and is no lock: {name}
-- Closes     no race: nothing is decided by the reply.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local reply = {}
local name, tag

local function describe_holder(owner, mode, left)
    local record = redis.call('GET', 'tenure_claim:' .. tag .. ':' .. owner)
    return { owner, record or '', redis.call('HGET', 'tenure_claims:' .. string.sub(owner, 1, 36) .. SCOPE, 'label'), mode, left }
end

--: include redisson_permits
-- Returns the holders of a semaphore; nil if the string is none. A permit of another client is a holder.
local function describe_semaphore()
    use_semaphore(tag)
    local available, shown, holding = redis.call('GET', name), {}, {}
    if not string.find(available, '^%-?%d+$') then
        return nil
    end
    local of = string.format('/%d', available + redis.call('ZCARD', permits))
    for _, owner in ipairs(redis.call('ZRANGEBYSCORE', holders, '(' .. now_ms, '+inf')) do
        local ids, ends = {}, nil
        if owner ~= BAR then
            ids, ends = permits_of(owner)
        end
        if ends and ends > now_ms then
            holding[#holding + 1] = describe_holder(owner, #ids .. of, ends - now_ms - 1)
        end
        for _, id in ipairs(ids) do
            shown[id] = true
        end
    end
    local taken = redis.call('ZRANGEBYSCORE', permits, '(' .. now_ms, '+inf', 'WITHSCORES')
    for i = 1, #taken, 2 do
        local id, ends = taken[i], tonumber(taken[i + 1])
        if not shown[id] and string.sub(id, 1, #BAR) ~= BAR then
            holding[#holding + 1] = { in_hex(id), '', false, 1 .. of, ends < PERMANENT and ends - now_ms - 1 or -1 }
        end
    end
    return holding
end

--: include redisson_owners
for _, key in ipairs(KEYS) do
    name = key
    tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
    local queue, timeouts, waiters = 'redisson_lock_queue:' .. tag, 'redisson_lock_timeout:' .. tag, 'tenure_waiters:' .. tag
    local holders, waiting = {}, {}
    local owners, modes, left = owners_of()
    for _, owner in ipairs(owners) do
        holders[#holders + 1] = describe_holder(owner, modes[owner], left[owner])
    end
    local permit_holders = redis.call('TYPE', name).ok == 'string' and describe_semaphore()
    holders = permit_holders or holders
    local members = redis.pcall('LRANGE', queue, 0, -1)
    for _, member in ipairs(members.err and {} or members) do
        local ends = redis.call('ZSCORE', waiters, member)
        local score = ends or redis.call('ZSCORE', timeouts, member)
        if score and tonumber(score) >= now_ms then
            waiting[#waiting + 1] = { member, ends and redis.call('GET', 'tenure_claim:' .. tag .. ':' .. member) or '' }
        end
    end
    if #holders > 0 or #waiting > 0 then
        reply[#reply + 1] = { name, holders, waiting }
    elseif #KEYS == 1 and not permit_holders and redis.call('EXISTS', name) == 1 then
        local bars = redis.pcall('HMGET', name, 'tenure:bar', 'tenure:bar:write')
        if bars.err or not (bars[1] or bars[2]) then
            reply[1] = { name }
        end
    end
end
return reply
