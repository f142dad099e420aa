-- Makes one holder or waiter of a mutex absent, wakes who may go next, and places the successor.
--
-- Inputs     KEYS  the lock's name; then if there is a successor: the token counter, what is known of its client, its doubts
--            ARGV  owner ('' for whoever holds), end ('' if no request of the owner's can be on the way, 'N' if besides
--                  something was written down of it, 'E' if one can be on the way, or 'V' and who evicts), how many of the
--                  lock's subscribers are the caller's own, the caller's client; bar (ms), if there is one or a successor;
--                  then of a successor what redisson_acquire has of a claim
-- Atomicity  one script: the end, the wake-up and the successor's grant are one step.
-- Answer     numbers in one text, with blanks between: freed (1 or 0), how many wait elsewhere, and if there is a successor
--            what redisson_acquire says of it. -1 and 0 where an eviction finds a read-write lock, and does nothing.
--            Where no owner was given a list: {owner, 1 if it is a claim of ours} for each freed, how many wait elsewhere
-- Closes     where it matters the claim's record says that it has ended before anybody can hear of it, so a request of
--            its own that was delayed is too late; the successor is granted only if nobody else listens, so no waiter
--            elsewhere is passed over.
local KEYS, ARGV, call = KEYS, ARGV, redis.call
local name, counter, owner, ending, open, close = KEYS[1], KEYS[2], ARGV[1], ARGV[2], '{', '}'
if string.find(name, '{', 1, true) then
    open, close = '', ''
end
local plain = ending == '' or ending == 'N'
local evicted, there, left = not plain and string.sub(ending, 1, 1) == 'V', {}, 0

-- An eviction looks first whether it is a mutex: what is none may be somebody's data.
if evicted then
    --: include redisson_owners
    if call('TYPE', name).ok == 'hash' and call('HEXISTS', name, 'mode') == 1 then
        return '-1 0'
    end
    there, left = owners_of(name), math.max(call('PTTL', name), 0)
    for _, one in ipairs(there) do
        there[one] = true
    end
end

-- The usual case, a holder that is done and has no successor, while nobody queues, in three calls. What is no lock any more
-- is nobody's: its error is not ours. Any other is, or a server that takes no writes would say that nobody held.
local held = owner ~= '' and (not evicted or there[owner]) and redis.pcall('HDEL', name, owner)
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
end
held = held == 1
if held and plain and not ARGV[5] then
    if ending == 'N' then
        call('DEL', 'tenure_claim:' .. open .. name .. close .. ':' .. owner)
    end
    if call('EXISTS', 'redisson_lock_queue:' .. open .. name .. close) == 0 then
        local heard = call('PUBLISH', 'redisson_lock__channel:' .. open .. name .. close, '0')
        return '1 ' .. math.max(heard - ARGV[3], 0)
    end
end
local own, time = tonumber(ARGV[3]), call('TIME')
local now = time[1] * 1000000 + time[2]
--: include redisson_draw

-- The usual hand-over, to an unfair successor of whom nothing is known, while nobody queues and nobody else listens.
if held and plain and ARGV[5] == '0' and ARGV[6] and ARGV[11] ~= '1' and not ARGV[12] and now <= tonumber(ARGV[8]) then
    if
        call('EXISTS', name, KEYS[4], 'redisson_lock_queue:' .. open .. name .. close) == 0
        and call('PUBSUB', 'NUMSUB', 'redisson_lock__channel:' .. open .. name .. close)[2] <= own
    then
        local grants = tonumber(ARGV[9])
        local first = draw(grants)
        if first then
            if ending == 'N' then
                call('DEL', 'tenure_claim:' .. open .. name .. close .. ':' .. owner)
            end
            call('HSET', name, ARGV[6], '1')
            call('PEXPIRE', name, ARGV[7])
            return string.format('1 0 1 %d %d %d', first, grants, now)
        end
    end
end
local tag = open .. name .. close
local queue = 'redisson_lock_queue:' .. tag
--: include redisson_place
-- Forgets a claim that has ended; and writes down that it has, if that matters to anybody: to a request of its own that is
-- still on the way, or to an evicted holder, who is told so for as long as its lease would have lasted.
local function finish(one)
    if plain then
        -- That it waited, or what it was granted. Whatever else stands there is to be told.
        local kind = string.sub(call('GET', records .. one) or '', 1, 1)
        if kind == 'W' or kind == 'G' then
            call('DEL', records .. one)
        end
        return
    end
    if evicted and ARGV[4] == '' and not is_ours(one) then
        -- One of Java's, which looks for no word of ours.
        return
    end
    local doubts, long = 'tenure_doubts:' .. string.sub(one, 1, 36), REMEMBERED + left
    if evicted then
        long = math.max(long, call('PTTL', records .. one))
    end
    call('SET', records .. one, ending, 'PX', long)
    call('SET', doubts, '1', 'PX', math.max(REMEMBERED, call('PTTL', doubts)))
end

local before = call('LINDEX', queue, 0)
sweep()
if before then
    tend()
end
local freed = held and 1 or 0
if owner == '' then
    freed = {}
    for _, one in ipairs(there) do
        held = true
        freed[#freed + 1] = { one, is_ours(one) and 1 or 0 }
        call('HDEL', name, one)
        finish(one)
    end
elseif held then
    finish(owner)
elseif call('ZSCORE', timeouts, owner) then
    freed = 1
    leave(owner)
    tend()
    finish(owner)
    if evicted then
        -- It is told, and may queue again, at the end.
        call_head(owner)
    end
elseif string.sub(call('GET', records .. owner) or '', 1, 1) ~= 'V' then
    -- Never seen, or gone already, by whatever: its placing may be on the way.
    if evicted then
        ending, evicted = 'E', false
    end
    finish(owner)
end
if held and tonumber(ARGV[5] or 0) > 0 then
    -- A holder that is nobody keeps the key for a moment: Java respects it as any.
    call('HSET', name, 'tenure:bar', 1)
    call('PEXPIRE', name, ARGV[5])
end

local others = 0
for _, one in ipairs(call('LRANGE', queue, 0, -1)) do
    if string.sub(one, 1, 36) ~= ARGV[4] then
        others = others + 1
    end
end
others = others + math.max(call('PUBSUB', 'NUMSUB', channel)[2] - own, 0)

local answer = owner == '' and { freed, others } or freed .. ' ' .. others
if ARGV[6] then
    keep(KEYS[3], ARGV[12], ARGV[13])
    local lease, not_after, grants = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
    local code, first, second =
        place(ARGV[6], lease, not_after, grants, ARGV[10] or '', ARGV[11] == '1', others > 0)
    answer = answer .. string.format(' %d %d %d %d', code, first, second, now)
    if code == 1 then
        return answer
    end
end
local head = call('LINDEX', queue, 0)
if head and (held or head ~= before) then
    call_head(head)
elseif held or head ~= before then
    call('PUBLISH', channel, '0')
end
return answer
