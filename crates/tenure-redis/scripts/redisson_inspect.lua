-- Returns locks with their holders and waiters. Changes nothing.
--
-- Inputs     KEYS  the names of the locks
-- Atomicity  one script: each lock is shown as it was at one moment.
-- Reply      for each name with a live holder or waiter {name, holders, waiters}. A holder is {owner, its record or '', its
--            client's label or false if Redis has no record of the client, mode ('' in a mutex, 'R' a reader, 'W' a writer,
--            in a semaphore TAKEN/SIZE), time left (ms)}, a waiter {owner, its record or ''}. If KEYS has a single name,
--            which exists and is no lock: {name}
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local reply = {}
local name, tag

local function describe_holder(owner, mode, left)
    local record = redis.call('GET', 'tenure_claim:' .. tag .. ':' .. owner)
    return { owner, record or '', redis.call('HGET', 'tenure_client:' .. string.sub(owner, 1, 36) .. SCOPE, 'label'), mode, left }
end

--: include redisson_permits
--: include redisson_owners
for _, key in ipairs(KEYS) do
    name = key
    tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
    local queue, timeouts, waiters = 'redisson_lock_queue:' .. tag, 'redisson_lock_timeout:' .. tag, 'tenure_waiters:' .. tag
    local holders, waiting = {}, {}
    local is_semaphore = redis.call('TYPE', name).ok == 'string' and string.find(redis.call('GET', name), '^%-?%d+$')
    local owners, modes, left = (is_semaphore and owners_of_permits or owners_of)()
    for _, owner in ipairs(owners) do
        holders[#holders + 1] = describe_holder(owner, modes[owner], left[owner])
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
        reply[#reply + 1] = { name, holders, waiting }
    elseif #KEYS == 1 and not is_semaphore and redis.call('EXISTS', name) == 1 then
        local cooldowns = redis.pcall('HMGET', name, 'tenure:cooldown', 'tenure:cooldown:write')
        if cooldowns.err or not (cooldowns[1] or cooldowns[2]) then
            reply[1] = { name }
        end
    end
end
return reply
