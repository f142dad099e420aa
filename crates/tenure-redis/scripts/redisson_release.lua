-- Makes one holder or waiter of a mutex absent, wakes who may go next, and places the heir.
--
-- Inputs     KEYS  the lock's name, the token counter; then of an heir: what is known of its client, its doubts
--            ARGV  owner ('' for whoever holds), end ('' if no request of the owner's can be on the way, 'N' if besides
--                  something was written down of it, 'E' if one can be on the way, or 'V' and who evicts), bar (ms), how
--                  many of the lock's subscribers are the caller's own, the caller's client; then of an heir: owner,
--                  lease (ms), place_by (µs of TIME), grants, label, '1' if fair else ''; and for how long (ms) to keep
--                  what is known of its client, and its label, if it is to be said
-- Atomicity  one script: the end, the wake-up and the heir's grant are one step.
-- Answer     {freed, waiting elsewhere}, or {freed, waiting elsewhere, the heir's answer as of redisson_acquire, time};
--            freed is 1 or 0, or where no owner was given {owner, 1 if it is a claim of ours} for each, or -1 where an
--            eviction finds a read-write lock, and does nothing
-- Closes     where it matters the claim's record says that it has ended before anybody can hear of it, so a request of
--            its own that was delayed is too late; the heir is granted only if nobody else listens, so no waiter
--            elsewhere is passed over.
local name, counter = KEYS[1], KEYS[2]
local tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
local queue = 'redisson_lock_queue:' .. tag
local owner, ending, own = ARGV[1], ARGV[2], tonumber(ARGV[4])
local evicted = string.sub(ending, 1, 1) == 'V'

--: include redisson_owners
-- An eviction looks first whether it is a mutex: what is none may be somebody's data.
local there, left = {}, 0
if evicted then
    if redis.call('TYPE', name).ok == 'hash' and redis.call('HEXISTS', name, 'mode') == 1 then
        return { -1, 0 }
    end
    there, left = owners_of(name), math.max(redis.call('PTTL', name), 0)
    for _, one in ipairs(there) do
        there[one] = true
    end
end

-- The usual case, a holder that is done and has no heir, while nobody queues, in three calls. What is no lock any more
-- is nobody's: its error is not ours. Any other is, or a server that takes no writes would say that nobody held.
local held = owner ~= '' and (not evicted or there[owner]) and redis.pcall('HDEL', name, owner)
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
end
held = held == 1
if held and (ending == '' or ending == 'N') and #ARGV == 5 then
    if ending == 'N' then
        redis.call('HDEL', 'tenure_claims:' .. ARGV[5], owner)
    end
    if redis.call('EXISTS', queue) == 0 then
        return { 1, math.max(redis.call('PUBLISH', 'redisson_lock__channel:' .. tag, '0') - own, 0) }
    end
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- The usual hand-over, to an unfair heir of whom nothing is known, while nobody queues and nobody else listens. Numbers
-- are made texts here, since that is dear where a call does it.
if held and (ending == '' or ending == 'N') and #ARGV == 11 and ARGV[11] == '' and now <= tonumber(ARGV[8]) then
    if
        redis.call('EXISTS', name, queue, KEYS[4]) == 0
        and redis.call('PUBSUB', 'NUMSUB', 'redisson_lock__channel:' .. tag)[2] <= own
    then
        local text = string.format
        local last = math.max(now, (tonumber(redis.call('GETSET', counter, text('%d', now))) or 0) + ARGV[9])
        if last > now then
            redis.call('GETSET', counter, text('%d', last))
        end
        if ending == 'N' then
            redis.call('HDEL', 'tenure_claims:' .. ARGV[5], owner)
        end
        redis.call('HSET', name, ARGV[6], '1')
        redis.call('PEXPIRE', name, ARGV[7])
        return { 1, 0, { 1, last - ARGV[9] + 1, tonumber(ARGV[9]) }, now }
    end
end
--: include redisson_place
-- Forgets a claim that has ended; and writes down that it has, if that matters to anybody: to a request of its own that is
-- still on the way, or to an evicted holder, who is told so for as long as its lease would have lasted.
local function finish(one)
    redis.call('HDEL', claims_of(one), one)
    if ending == '' or ending == 'N' then
        -- That it waited. Whatever else stands there is to be told.
        if string.sub(redis.call('GET', records .. one) or '', 1, 1) == 'W' then
            redis.call('DEL', records .. one)
        end
        return
    end
    if evicted and ARGV[5] == '' and redis.call('EXISTS', claims_of(one)) == 0 then
        -- One of Java's, which looks for no word of ours.
        return
    end
    local doubts, long = 'tenure_doubts:' .. string.sub(one, 1, 36), REMEMBERED + left
    if evicted then
        long = math.max(long, redis.call('PTTL', records .. one))
    end
    redis.call('SET', records .. one, ending, 'PX', long)
    redis.call('SET', doubts, '1', 'PX', math.max(REMEMBERED, redis.call('PTTL', doubts)))
end

local before = redis.call('LINDEX', queue, 0)
sweep()
local freed = held and 1 or 0
if owner == '' then
    freed = {}
    for _, one in ipairs(there) do
        held = true
        freed[#freed + 1] = { one, redis.call('EXISTS', claims_of(one)) }
        redis.call('HDEL', name, one)
        finish(one)
    end
elseif held then
    finish(owner)
elseif redis.call('ZSCORE', timeouts, owner) then
    freed = 1
    leave(owner)
    tend()
    finish(owner)
elseif string.sub(redis.call('GET', records .. owner) or '', 1, 1) ~= 'V' then
    -- Never seen, or gone already, by whatever: its placing may be on the way.
    if evicted then
        ending, evicted = 'E', false
    end
    finish(owner)
end
if held and tonumber(ARGV[3]) > 0 then
    -- A holder that is nobody keeps the key for a moment: Java respects it as any.
    redis.call('HSET', name, 'tenure:bar', 1)
    redis.call('PEXPIRE', name, ARGV[3])
end

local others = 0
for _, one in ipairs(redis.call('LRANGE', queue, 0, -1)) do
    if string.sub(one, 1, 36) ~= ARGV[5] then
        others = others + 1
    end
end
others = others + math.max(redis.call('PUBSUB', 'NUMSUB', channel)[2] - own, 0)

local answer = { freed, others }
if #ARGV > 5 then
    keep(KEYS[3], ARGV[12], ARGV[13])
    answer[3] = place(KEYS[3], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10], ARGV[11] == '1', others > 0)
    answer[4] = now
    if answer[3][1] == 1 then
        return answer
    end
end
local head = redis.call('LINDEX', queue, 0)
if head and (held or head ~= before) then
    call_head(head)
elseif held or head ~= before then
    redis.call('PUBLISH', channel, '0')
end
return answer
