-- Functions that redisson_acquire and redisson_release share, for all but their common cases. Included in both, which
-- define `name`, `tag`, `queue`, `now` (µs) and `draw`.
--
-- A lock has Redisson's keys (the hash, the list `queue`, the zset `timeouts` of scores for Java) and these of ours:
--   waiters            zset: the members of the queue that are our claims, with the time (ms) when each one's lease ends.
--                      From then on the claim is dead, whatever its score for Java says.
--   records .. owner   the record of a claim.  W:LABEL it waits.  E it has ended.  V[BY] it was evicted; this outlives the
--                      lease by 12 s, in which a delayed request can still arrive.  G:FIRST:COUNT:LABEL tokens and label
--                      of a granted claim that was renewed; this expires with the lease, and the release deletes it.
-- For each client:
--   tenure_claims      hash with the client's `label`.
--   tenure_doubts      exists while a request of an ended claim may be in flight. Only then do the common cases look for
--                      records of ended claims.
local timeouts, waiters = 'redisson_lock_timeout:' .. tag, 'tenure_waiters:' .. tag
local channel = 'redisson_lock__channel:' .. tag
local records = 'tenure_claim:' .. tag .. ':'
local now_ms = math.floor(now / 1000)
local RECORD_TTL = 12000
-- The time (ms) for which Java lets a waiter stand at the head of the queue (fairLockWaitTimeout), by Java's clock.
local JAVA_TIMEOUT = 300000
local DAY = 86400000
-- The time (ms) after which a successor polls again if it was not granted because others wait. script.rs inserts it.
local TURN = TURN_MS
--: include redisson_foreign

-- Removes a waiter from the queue. The scores of waiters behind it stay: a Java waiter whose score fell below its
-- clock would move itself to the tail.
local function remove_from_queue(owner)
    redis.call('LREM', queue, 1, owner)
    redis.call('ZREM', timeouts, owner)
    redis.call('ZREM', waiters, owner)
end

local function client_key(owner)
    return 'tenure_claims:' .. string.sub(owner, 1, 36) .. SCOPE
end

-- Returns whether an owner is a claim of ours: Redis then has a record of the claim or its client.
local function is_ours(owner)
    return redis.call('EXISTS', client_key(owner), records .. owner) > 0
end

-- Writes or extends a client's record, if a time to live (ms) is given. The label is '' if the client's claims have
-- different ones.
local function write_client_record(claims, ttl, label)
    if ttl then
        redis.call('HSET', claims, 'label', label)
        redis.call('PEXPIRE', claims, math.max(ttl, redis.call('PTTL', claims)))
    end
end

-- Sets when the queue's keys expire, so that dead waiters do not stay for ever: 1 s after the last lease of our waiters
-- and of the holder. If Java uses the lock too, a day after our last waiter's lease, because a Java waiter may enter
-- meanwhile and must not expire with ours. With Java's waiters only, the keys do not expire, as in Redisson. Called
-- after each change of the queue.
local function set_queue_expiry()
    local last = redis.call('ZREVRANGE', waiters, 0, 0, 'WITHSCORES')[2]
    if last and is_shared_with_foreign(name, timeouts, waiters) then
        last = last + DAY
    elseif last then
        last = math.max(last, now_ms + redis.call('PTTL', name)) + 1000
    end
    for _, key in ipairs({ queue, timeouts, waiters }) do
        if last then
            redis.call('PEXPIREAT', key, last)
        else
            redis.call('PERSIST', key)
        end
    end
end

-- Removes dead waiters: ours whose lease has ended, at any place in the queue, and Java's at the head whose score has
-- passed or is missing (which would block Java for ever). Returns the head after that.
local function sweep()
    local swept = false
    for _, dead in ipairs(redis.call('ZRANGEBYSCORE', waiters, '-inf', '(' .. now_ms)) do
        remove_from_queue(dead)
        swept = true
    end
    local head = redis.call('LINDEX', queue, 0)
    while head and not redis.call('ZSCORE', waiters, head) do
        local score = redis.call('ZSCORE', timeouts, head)
        if score and tonumber(score) > now_ms then
            break
        end
        redis.call('LPOP', queue)
        redis.call('ZREM', timeouts, head)
        swept = true
        head = redis.call('LINDEX', queue, 0)
    end
    if swept then
        set_queue_expiry()
    end
    return head
end

local function wake_head(head)
    redis.call('PUBLISH', channel .. ':' .. head, '0')
end

-- Returns after how many ms a waiting claim shall poll: when the lease of the holder or of one of our queued waiters
-- ends, or on a free key, when the head is dead. `left` is the rest of the holder's lease (ms); -1 if the lock has no
-- expiry (Java leaves some), -2 if it has no holder.
local function poll_after(left, head)
    local soonest = left >= 0 and left + 1 or 1000
    if left == -2 and head then
        local score = redis.call('ZSCORE', waiters, head) or redis.call('ZSCORE', timeouts, head)
        soonest = score and score - now_ms + 1 or 1
    end
    local next_end = redis.call('ZRANGE', waiters, 0, 0, 'WITHSCORES')[2]
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

-- Returns the slack of our waiter: the ms by which its score for Java exceeds the end of its lease. Java subtracts
-- this time when Java waiters ahead leave.
local function slack_of(owner)
    local score, ends = redis.call('ZSCORE', timeouts, owner), redis.call('ZSCORE', waiters, owner)
    return score and ends and math.max(score - ends, 0) or 0
end

-- Returns the slack of a claim that enters the queue: that of our last waiter, plus JAVA_TIMEOUT for each Java waiter
-- behind our last one.
local function slack_of_newcomer()
    local slack, at = 0, -1
    local other = redis.call('LINDEX', queue, at)
    while other and not redis.call('ZSCORE', waiters, other) do
        slack, at = slack + JAVA_TIMEOUT, at - 1
        other = redis.call('LINDEX', queue, at)
    end
    return other and slack + slack_of(other) or slack
end

-- Places or polls one claim. `yields` is true for a successor if other clients wait: then it is not granted. Returns the
-- three numbers that `redisson_acquire` replies before the time.
local function place(owner, lease, not_after, grants, label, fair, yields)
    local held = redis.call('HMGET', name, owner, 'mode')
    local record = redis.call('GET', records .. owner)
    local kind = record and string.sub(record, 1, 1)
    if kind == 'G' and held[1] then
        redis.call('PEXPIRE', name, lease)
        redis.call('PEXPIRE', records .. owner, lease)
        local first, count = string.match(record, '^G:(%d+):(%d+)')
        return 1, tonumber(first), tonumber(count)
    end
    local waits = kind == 'W'
    if record and not waits then
        return 2, 0, 0
    elseif not (record or held[1]) then
        if now > not_after then
            return 3, 0, 0
        elseif held[2] then
            return 4, 0, 0
        end
    end
    local left = held[1] and -2 or redis.call('PTTL', name)
    if left == -1 and not record then
        --: include redisson_owners
        if #owners_of(name) == 0 then
            return 6, 0, 0
        end
    end
    if left ~= -2 and not fair then
        -- The claim waits no longer than its own lease, because Java may shorten the holder's.
        return 0, unfair_poll(left >= 0 and left + 1 or 1000, lease), -1
    end
    local before = redis.call('LINDEX', queue, 0)
    local head = sweep()
    if waits and not redis.call('ZSCORE', waiters, owner) then
        return 2, 0, 0
    end
    if held[1] or left == -2 and not yields and (not head or head == owner) then
        local first = draw(grants)
        if not first then
            return 5, 0, 0
        end
        if waits or head == owner then
            remove_from_queue(owner)
            set_queue_expiry()
            redis.call('DEL', records .. owner)
        end
        redis.call('HSET', name, owner, 1)
        redis.call('PEXPIRE', name, lease)
        return 1, first, grants
    end
    if left == -2 and head and head ~= before and head ~= owner then
        wake_head(head)
    end
    if not fair then
        return 0, yields and TURN or unfair_poll(poll_after(left, head), lease), -1
    end
    -- If Java took a live waiter of ours for dead and removed it, puts it back at the head: Java removes only heads.
    local javas = redis.call('ZCARD', timeouts) - redis.call('ZCARD', waiters)
    local slack = javas > 0 and (waits and slack_of(owner) or slack_of_newcomer()) or 0
    local ahead = redis.call('LPOS', queue, owner)
    if not ahead and waits then
        redis.call('LPUSH', queue, owner)
        ahead = 0
    elseif not ahead then
        ahead = redis.call('RPUSH', queue, owner) - 1
    end
    -- Java takes a waiter for dead when its score has passed. So our score is the end of our lease, plus what Java will
    -- subtract as its waiters ahead leave: at most JAVA_TIMEOUT for each, and nothing at the head. Each poll sets the
    -- score again, so Java does not take a live waiter for dead.
    slack = ahead > 0 and math.min(slack, javas * JAVA_TIMEOUT) or 0
    redis.call('ZADD', timeouts, now_ms + lease + slack, owner)
    redis.call('ZADD', waiters, now_ms + lease, owner)
    redis.call('SET', records .. owner, 'W:' .. label, 'PX', lease + RECORD_TTL)
    set_queue_expiry()
    local poll = yields and left == -2 and TURN or poll_after(left, ahead > 0 and head or nil)
    if javas > 0 and ahead > 0 and not redis.call('ZSCORE', waiters, redis.call('LINDEX', queue, ahead - 1)) then
        -- A Java waiter that gives up publishes nothing, so the waiter behind it polls.
        poll = math.min(poll, FOREIGN_POLL)
    elseif ahead == 0 and poll > FOREIGN_POLL and left ~= -2 and is_held_by_foreign(name) then
        poll = FOREIGN_POLL
    end
    return 0, math.max(1, math.min(poll, math.floor(lease / 3))), ahead
end
