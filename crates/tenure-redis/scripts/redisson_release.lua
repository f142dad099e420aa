-- Releases one owner that holds or waits, or all holders; wakes the next waiter; places a successor, if there is one.
--
-- Inputs     KEYS  the lock's name; with a successor also: the token counter, its client's record, the key that exists
--                  while requests of that client's ended claims may be in flight
--            ARGV  owner ('' for all holders), ending ('' if no request of the owner can be in flight, 'N' if the owner
--                  also has a record, 'E' if a request can be in flight, 'V' and the evicting client's label for an
--                  eviction), how many of the lock's subscribers are the caller's own, the caller's client UUID; the
--                  cooldown (ms), if there is one or a successor; then for a successor the arguments of redisson_acquire
-- Atomicity  one script: the release, the message and the successor's grant are one step.
-- Reply      numbers in one text, separated by blanks: freed (1 or 0), how many others wait, and for a successor the reply
--            of redisson_acquire. -1 and 0 if an eviction finds a read-write lock, which it leaves alone. Without an
--            owner a list: {owner, 1 if it is our claim} for each freed holder, and how many others wait.
-- Closes     the race between the release and a delayed request of the same claim: if such a request may be in flight, the
--            same step writes the record that the claim has ended. The successor is granted only if no other client
--            subscribes or queues, so no waiter of another client is passed over.
local KEYS, ARGV, call = KEYS, ARGV, redis.call
local name, counter, claims, doubts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, ending, own_subscribers, client, cooldown = unpack(ARGV, 1, 5)
local successor, lease, not_after, grants, label, fair, client_ttl, client_label = unpack(ARGV, 6, 13)
local open, close = '{', '}'
if string.find(name, '{', 1, true) then
    open, close = '', ''
end
local plain = ending == '' or ending == 'N'
local evicted, holders, left = not plain and string.sub(ending, 1, 1) == 'V', {}, 0

-- An eviction first checks that the key is a mutex, because the key may hold another program's data.
if evicted then
    --: include redisson_owners
    if call('TYPE', name).ok == 'hash' and call('HEXISTS', name, 'mode') == 1 then
        return '-1 0'
    end
    holders, left = owners_of(name), math.max(call('PTTL', name), 0)
    for _, one in ipairs(holders) do
        holders[one] = true
    end
end

-- The common case in three calls: a holder leaves without a successor, and no client queues. A key of another type
-- has no holder, so that error counts as "not held". Other errors are returned: a server that refuses writes must not
-- look like a lock that was not held.
local held = owner ~= '' and (not evicted or holders[owner]) and redis.pcall('HDEL', name, owner)
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
        call('EXISTS', name, doubts, 'redisson_lock_queue:' .. open .. name .. close) == 0
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
local queue = 'redisson_lock_queue:' .. tag
--: include redisson_place
-- Deletes the record of a released claim. But if a request of the claim may be in flight, or the claim was evicted, writes
-- a record of its end instead, for that request or for the evicted holder's next renewal. The latter comes at the latest
-- when the lease would have ended.
local function end_claim(one)
    if plain then
        -- Deletes the record of a waiting (W) or granted (G) claim. The record of an ended claim stays.
        local kind = string.sub(call('GET', records .. one) or '', 1, 1)
        if kind == 'W' or kind == 'G' then
            call('DEL', records .. one)
        end
        return
    end
    if evicted and client == '' and not is_ours(one) then
        -- The owner is a Java thread, which does not read our records.
        return
    end
    local doubts, ttl = 'tenure_doubts:' .. string.sub(one, 1, 36) .. SCOPE, RECORD_TTL + left
    if evicted then
        ttl = math.max(ttl, call('PTTL', records .. one))
    end
    call('SET', records .. one, ending, 'PX', ttl)
    call('SET', doubts, '1', 'PX', math.max(RECORD_TTL, call('PTTL', doubts)))
end

local before = call('LINDEX', queue, 0)
sweep()
if before then
    set_queue_expiry()
end
local freed = held and 1 or 0
if owner == '' then
    freed = {}
    for _, one in ipairs(holders) do
        held = true
        freed[#freed + 1] = { one, is_ours(one) and 1 or 0 }
        call('HDEL', name, one)
        end_claim(one)
    end
elseif held then
    end_claim(owner)
elseif call('ZSCORE', timeouts, owner) then
    freed = 1
    remove_from_queue(owner)
    set_queue_expiry()
    end_claim(owner)
    if evicted then
        -- Wakes the evicted waiter, so that it learns of its eviction.
        wake_head(owner)
    end
elseif string.sub(call('GET', records .. owner) or '', 1, 1) ~= 'V' then
    -- The owner neither holds nor waits. A request that places it may still arrive.
    if evicted then
        ending, evicted = 'E', false
    end
    end_claim(owner)
end
if held and tonumber(cooldown or 0) > 0 then
    -- During the cooldown a field of no client holds the key. Java respects this field like any holder.
    call('HSET', name, 'tenure:bar', 1)
    call('PEXPIRE', name, cooldown)
end

local others = 0
for _, one in ipairs(call('LRANGE', queue, 0, -1)) do
    if string.sub(one, 1, 36) ~= client then
        others = others + 1
    end
end
others = others + math.max(call('PUBSUB', 'NUMSUB', channel)[2] - own, 0)

local reply = owner == '' and { freed, others } or freed .. ' ' .. others
if successor then
    write_client_record(claims, client_ttl, client_label)
    local code, first, second =
        place(successor, tonumber(lease), tonumber(not_after), tonumber(grants), label or '', fair == '1', others > 0)
    reply = reply .. string.format(' %d %d %d %d', code, first, second, now)
    if code == 1 then
        return reply
    end
end
local head = call('LINDEX', queue, 0)
if head and (held or head ~= before) then
    wake_head(head)
elseif held or head ~= before then
    call('PUBLISH', channel, '0')
end
return reply
