-- Returns mutexes with their holders and waiters. Changes nothing.
--
-- Inputs     KEYS  the names of the locks
-- Atomicity  one script: each lock is shown as it was at one moment.
-- Reply      for each name: {name, time left (ms), holders, waiters}. A holder is {owner, its record or '', its client's
--            label or false if Redis has no record of the client}, a waiter {owner, its record or ''}. Names that are no
--            mutex, or have no live holder and no live waiter, are left out. If KEYS has a single name, which exists and
--            is no mutex: {name}
-- Closes     no race: nothing is decided by the reply.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local reply = {}

local function describe_holder(tag, owner)
    local record = redis.call('GET', 'tenure_claim:' .. tag .. ':' .. owner)
    return { owner, record or '', redis.call('HGET', 'tenure_claims:' .. string.sub(owner, 1, 36) .. SCOPE, 'label') }
end

--: include redisson_owners
for _, name in ipairs(KEYS) do
    local tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
    local queue, timeouts, waiters = 'redisson_lock_queue:' .. tag, 'redisson_lock_timeout:' .. tag, 'tenure_waiters:' .. tag
    local holders, waiting = {}, {}
    for _, owner in ipairs(owners_of(name)) do
        holders[#holders + 1] = describe_holder(tag, owner)
    end
    local members = redis.pcall('LRANGE', queue, 0, -1)
    for _, member in ipairs(members.err and {} or members) do
        local ends = redis.call('ZSCORE', waiters, member)
        local score = ends or redis.call('ZSCORE', timeouts, member)
        if score and tonumber(score) >= now_ms then
            waiting[#waiting + 1] = { member, ends and redis.call('GET', 'tenure_claim:' .. tag .. ':' .. member) or '' }
        end
    end
    if #holders > 0 or #waiting > 0 then
        reply[#reply + 1] = { name, redis.call('PTTL', name), holders, waiting }
    elseif #KEYS == 1 and redis.call('EXISTS', name) == 1 and redis.pcall('HEXISTS', name, 'tenure:bar') ~= 1 then
        reply[1] = { name }
    end
end
return reply
