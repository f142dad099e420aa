-- Releases one owner that holds or waits, or all holders; wakes the next waiter; places a successor, if there is one.
--
-- Inputs     KEYS  the lock's name; with a successor the other keys of redisson_acquire, for the successor's client
--            ARGV  owner ('' for all holders), ending ('' if no request of the owner can be in flight, 'N' as '' for an
--                  owner that has a record, 'E' if a request can be in flight, 'U' as 'E' for a claim of unknown kind,
--                  'V' and the evicting client's label for an eviction), how many of the lock's subscribers are the
--                  caller's own, the caller's UUID. If there is a cooldown or a successor: the cooldown (ms, 0 for
--                  none). If there is a successor: redisson_acquire's ARGV
-- Atomicity  one script: the release, the message and the successor's grant are one step.
-- Reply      one text: freed (1 or 0), how many others wait, and for a successor redisson_acquire's reply; or -1 and the
--            kind, if an eviction or 'U' finds a lock of another kind, which it leaves alone. Without an owner a list:
--            {owner, 1 if it is our claim} for each freed holder, and how many others wait.
-- Closes     the race between the release and a delayed request of the same claim: if such a request may be in flight, the
--            same step writes the record that the claim has ended. The successor is granted only if no other client
--            subscribes or queues, so no waiter of another client is passed over.
local KEYS, ARGV, call = KEYS, ARGV, redis.call
local name, counter, client_record, in_flight = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, ending, own_subscribers, client, cooldown = unpack(ARGV, 1, 5)
local successor, lease, not_after, grants, label, fair, client_ttl, client_label = unpack(ARGV, 6, 13)
local successor_mode
local open, close = '{', '}'
if string.find(name, '{', 1, true) then
    open, close = '', ''
end
local plain = ending == '' or ending == 'N'
-- The common case in three calls: a holder leaves without a successor, and no client queues. A key of another type
-- has no holder, so that error counts as "not held". Other errors are returned: a server that refuses writes must not
-- look like a lock that was not held.
local held = owner ~= '' and (plain or ending == 'E') and redis.pcall('HDEL', name, owner)
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held
end
held = held == 1
if held and plain and not cooldown then
    if ending == 'N' then
        call('DEL', 'tenure_claim:' .. open .. name .. close .. ':' .. owner)
    end
    if call('EXISTS', 'redisson_lock_queue:' .. open .. name .. close) == 0 then
        local receivers = call('PUBLISH', 'redisson_lock__channel:' .. open .. name .. close, '0')
        return '1 ' .. math.max(receivers - own_subscribers, 0)
    end
end
local own, time = tonumber(own_subscribers), call('TIME')
local now = time[1] * 1000000 + time[2]
--: include redisson_draw

-- The common hand-over: to an unfair successor, with no queue, no subscribers of other clients and no record to write.
if held and plain and cooldown == '0' and successor and fair ~= '1' and not client_ttl and now <= tonumber(not_after) then
    if
        call('EXISTS', name, in_flight, 'redisson_lock_queue:' .. open .. name .. close) == 0
        and call('PUBSUB', 'NUMSUB', 'redisson_lock__channel:' .. open .. name .. close)[2] <= own
    then
        local count = tonumber(grants)
        local first = draw(count)
        if first then
            if ending == 'N' then
                call('DEL', 'tenure_claim:' .. open .. name .. close .. ':' .. owner)
            end
            call('HSET', name, successor, '1')
            call('PEXPIRE', name, lease)
            return string.format('1 0 1 %d %d %d', first, count, now)
        end
    end
end
local tag = open .. name .. close
--: include redisson_records
--: include redisson_mutex
--: include redisson_place
--: include redisson_leave
