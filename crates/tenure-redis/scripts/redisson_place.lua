-- Functions that the acquire and release scripts share, for all but their common cases. Included in them, after the parts
-- `redisson_records` and `kind`. They define `call`, `now` (µs) and `draw`.
local channel = CHANNEL .. tag
local DAY = 86400000
-- The most dead waiters that a call removes. The next calls remove the others.
local MAX_SWEPT = 100
--: include redisson_foreign

-- Returns the kind of lock for which a claim waits in the queue: 0 a mutex, -1 a read-write lock, or a semaphore's size.
local function kind_of_waiter(owner)
    local record = call('GET', records .. owner) or ''
    return string.find(record, '^W[RW]:') and -1 or tonumber(string.match(record, '^W%d+/(%d+):') or 0)
end

-- Returns the kind of lock that the key is; nil if it is free or in a cooldown, and has no queue.
local function kind_of_key()
    local type = call('TYPE', name).ok
    local is_hash, size = type == 'hash', type == 'string' and vacate_for_hash() or 0
    if size > 0 then
        return size
    elseif is_hash and call('HEXISTS', name, 'mode') == 1 then
        return -1
    elseif is_hash and call('HEXISTS', name, 'tenure:cooldown') == 0 then
        return 0
    end
    local head = call('LINDEX', queue, 0)
    return head and kind_of_waiter(head)
end

-- Removes a waiter from the queue. The scores of waiters behind it stay: a Redisson waiter whose score fell below its
-- clock would move itself to the tail.
local function remove_from_queue(owner)
    call('LREM', queue, 1, owner)
    call('ZREM', timeouts, owner)
    call('ZREM', waiters, owner)
end

-- Sets when the queue's keys expire, so that dead waiters do not stay for ever: 1 s after the last lease of our waiters
-- and of the holder. If Redisson uses the lock too, a day after our last waiter's lease, because a Redisson waiter may enter
-- meanwhile and must not expire with ours. With Redisson's waiters only, the keys do not expire, as in Redisson. Called
-- after each change of the queue.
local function set_queue_expiry()
    local last = call('ZREVRANGE', waiters, 0, 0, 'WITHSCORES')[2]
    if last and is_shared_with_foreign(name, timeouts, waiters) then
        last = last + DAY
    elseif last then
        last = math.max(last, now_ms + math.min(last_left(), 365 * DAY)) + 1000
    end
    for _, key in ipairs({ queue, timeouts, waiters }) do
        if last then
            call('PEXPIREAT', key, last)
        else
            call('PERSIST', key)
        end
    end
end

-- Removes dead waiters: ours whose lease has ended, at any place in the queue, and Redisson's at the head whose score has
-- passed or is missing (which would block Redisson for ever). Returns the head after that.
local function sweep()
    local dead = call('ZRANGEBYSCORE', waiters, '-inf', '(' .. now_ms, 'LIMIT', 0, MAX_SWEPT)
    for _, owner in ipairs(dead) do
        remove_from_queue(owner)
    end
    local head, swept = call('LINDEX', queue, 0), #dead
    while head and swept < MAX_SWEPT and not call('ZSCORE', waiters, head) do
        local score = call('ZSCORE', timeouts, head)
        if score and tonumber(score) > now_ms then
            break
        end
        remove_from_queue(head)
        swept = swept + 1
        head = call('LINDEX', queue, 0)
    end
    if swept > 0 then
        set_queue_expiry()
    end
    return head
end

-- Wakes the head of the queue. If the head is dead, because `sweep` found more dead waiters than it removes, wakes the
-- waiter whose lease ends last: its polls remove the dead ones, and then wake the head.
local function wake_head(head)
    local ends = call('ZSCORE', waiters, head)
    if ends and tonumber(ends) < now_ms then
        head = call('ZREVRANGE', waiters, 0, 0)[1]
    end
    call('PUBLISH', 'redisson_lock__channel:' .. tag .. ':' .. head, '0')
end

-- Wakes the waiters of a lock that is open: the head of the queue, if there is one, and all unfair waiters. Behind a queue
-- an unfair waiter is refused, but the reply says when the head will be dead. Otherwise it would sleep for up to its own
-- lease, although the key is free, if the head never polls. Redisson's waiters for read-write locks and semaphores never
-- queue, so they listen to this channel too.
local function wake_waiters(head)
    if head then
        wake_head(head)
    end
    call('PUBLISH', channel, payload)
end

-- Returns after how many ms a waiting claim shall poll: at the next end of a lease, the holder's or that of one of our
-- queued waiters; if the key is free, also when the head of the queue will be dead. `left` is the rest of the holder's lease (ms); -1 if the lock has no
-- expiry (Redisson leaves some), -2 if it has no holder.
local function poll_after(left, head)
    local soonest = left >= 0 and left + 1 or 1000
    if left == -2 and head then
        local score = call('ZSCORE', waiters, head) or call('ZSCORE', timeouts, head)
        soonest = score and score - now_ms + 1 or 1
    end
    local next_end = call('ZRANGE', waiters, 0, 0, 'WITHSCORES')[2]
    if next_end then
        soonest = math.min(soonest, next_end - now_ms + 1)
    end
    return math.max(soonest, 1)
end

-- Limits the poll interval of an unfair claim to its lease, and to FOREIGN_POLL if a client of another kind, which
-- may not wake unfair claims, uses the lock.
local function unfair_poll(after, lease)
    local soonest = math.min(after, lease)
    return soonest > FOREIGN_POLL and is_shared_with_foreign(name, timeouts, waiters) and FOREIGN_POLL or soonest
end

-- Places or polls one claim. `yields` is true for a successor if other clients wait: then it is not granted. Returns the
-- three numbers that `redisson_acquire` replies before the time.
local function place(owner, lease, not_after, grants, label, fair, yields)
    local seen, held, left, other_kind, cools = pcall(look, owner)
    if not seen then
        -- The key has another type. A string may be a semaphore, which is deleted if it is not in use. Any other type
        -- raises an error here.
        local size = vacate_for_hash()
        if size == 0 then
            held, left, other_kind, cools = look(owner)
        else
            held, left, other_kind, cools = false, size and 0 or -1, size
        end
    end
    local record = call('GET', records .. owner)
    local kind = record and string.sub(record, 1, 1)
    if kind == 'G' and held then
        extend(owner, lease)
        call('PEXPIRE', records .. owner, lease)
        local first, count = string.match(record, '^G:(%d+):(%d+)')
        return 1, tonumber(first), tonumber(count)
    end
    local waits = kind == 'W'
    if record and not waits then
        return 2, 0, 0
    elseif not (record or held) then
        if now > not_after then
            return 3, 0, 0
        elseif left == -1 and other_kind ~= -1 and #owners_of() == 0 then
            return 6, 0, 0
        end
        if other_kind then
            return 4, other_kind, 0
        end
    end
    if left ~= -2 and not (fair or cools) then
        -- The claim polls within its own lease, because Redisson may shorten the holder's lease.
        return 0, unfair_poll(left >= 0 and left + 1 or 1000, lease), -1
    end
    local before = call('LINDEX', queue, 0)
    local head = sweep()
    local ends = waits and call('ZSCORE', waiters, owner)
    if waits and not (ends and tonumber(ends) >= now_ms) then
        return 2, 0, 0
    elseif head and not (record or held) and kind_of_waiter(head) ~= own_kind then
        return 4, kind_of_waiter(head), 0
    end
    if held or left == -2 and not yields and (not head or head == owner) then
        local first = draw(grants)
        if not first then
            return 5, 0, 0
        end
        local queued = waits or head == owner
        if queued then
            remove_from_queue(owner)
            set_queue_expiry()
            call('DEL', records .. owner)
        end
        hold(owner, lease)
        if queued and is_open() then
            wake_waiters(call('LINDEX', queue, 0))
        end
        return 1, first, grants
    end
    if left == -2 and head and head ~= before and head ~= owner then
        wake_head(head)
    end
    if not fair then
        return 0, yields and TURN or unfair_poll(poll_after(left, head), lease), -1
    end
    -- If Redisson took a live waiter of ours for dead and removed it, puts it back at the head: Redisson removes only heads.
    local javas = own_kind == 0 and call('ZCARD', timeouts) - call('ZCARD', waiters) or 0
    local slack = javas > 0 and (waits and slack_of(owner) or slack_of_newcomer()) or 0
    -- LPOS reads the whole queue to find that a new claim is not in it, so this asks for its score first.
    local ahead = (waits or call('ZSCORE', timeouts, owner)) and call('LPOS', queue, owner)
    if not ahead and waits then
        call('LPUSH', queue, owner)
        ahead = 0
    elseif not ahead then
        ahead = call('RPUSH', queue, owner) - 1
    end
    -- Redisson takes a waiter for dead when its score has passed. So our score is the end of our lease, plus what
    -- Redisson will subtract as its waiters ahead leave: at most REDISSON_TIMEOUT for each, so nothing for the head of
    -- the queue. Each poll sets the score again, so Redisson does not take a live waiter for dead.
    slack = ahead > 0 and javas > 0 and math.min(slack, javas * REDISSON_TIMEOUT) or 0
    call('ZADD', timeouts, now_ms + lease + slack, owner)
    call('ZADD', waiters, now_ms + lease, owner)
    call('SET', records .. owner, 'W' .. mode .. ':' .. label, 'PX', lease + RECORD_TTL)
    set_queue_expiry()
    local poll = yields and left == -2 and TURN or poll_after(left, ahead > 0 and head or nil)
    if javas > 0 and ahead > 0 and not call('ZSCORE', waiters, call('LINDEX', queue, ahead - 1)) then
        -- A Redisson waiter that gives up publishes nothing, so the waiter behind it polls.
        poll = math.min(poll, FOREIGN_POLL)
    elseif ahead == 0 and poll > FOREIGN_POLL and left ~= -2 and (own_kind > 0 or is_held_by_foreign(name)) then
        poll = FOREIGN_POLL
    end
    return 0, math.max(1, math.min(poll, math.floor(lease / 3))), ahead
end
