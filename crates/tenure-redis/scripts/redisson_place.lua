-- What acquiring and releasing share, beyond their usual cases. Part of scripts, no script of its own: expects `name`,
-- `tag`, `queue`, `now` (µs) and `draw`.
--
-- Beside Redisson's own keys (the hash, the list `queue`, the zset `timeouts`) there are these of ours. For each lock:
--   waiters            which members of the queue are claims of ours, and until when (ms) each lives. A claim of ours
--                      that is in the list and not alive here is dead, whatever Java's score says.
--   records .. owner   what is to be known of one claim.  W:LABEL waits   E ended   V[BY] evicted: it outlives the lease by
--                      12 s, in which a request that was delayed can still arrive.  G:FIRST:COUNT:LABEL tokens and label
--                      of a granted claim that was renewed: it ends with the lease, and the release deletes it.
-- For each client:
--   tenure_claims      its `label`.
--   tenure_doubts      is there while a request may come of a claim that has ended: then the records are to be looked at.
local timeouts, waiters = 'redisson_lock_timeout:' .. tag, 'tenure_waiters:' .. tag
local channel = 'redisson_lock__channel:' .. tag
local records = 'tenure_claim:' .. tag .. ':'
local now_ms = math.floor(now / 1000)
local REMEMBERED = 12000
-- For how long Java lets a waiter stand at the head of the queue (fairLockWaitTimeout), by its own clock.
local PATIENCE = 300000
local DAY = 86400000
-- How soon a claim that lets others go first asks again: the contract's TURN, which script.rs writes here.
local TURN = TURN_MS
--: include redisson_foreign

-- Takes a member out of the queue. The scores of those behind stay: one of Java's that were lowered below its clock would
-- send itself to the tail.
local function leave(owner)
    redis.call('LREM', queue, 1, owner)
    redis.call('ZREM', timeouts, owner)
    redis.call('ZREM', waiters, owner)
end

-- Where it stands what is known of the owner's client.
local function claims_of(owner)
    return 'tenure_claims:' .. string.sub(owner, 1, 36)
end

-- Whether an owner is a claim of ours: it or its client has a record.
local function is_ours(owner)
    return redis.call('EXISTS', claims_of(owner), records .. owner) > 0
end

-- Keeps what is known of a client for so long, if it is to be kept. The label is '' where its claims have several.
local function keep(claims, long, label)
    if long then
        redis.call('HSET', claims, 'label', label)
        redis.call('PEXPIRE', claims, math.max(long, redis.call('PTTL', claims)))
    end
end

-- The queue ends with the last lease of ours in it and of the holder: what the dead leave is not for ever. Where Java uses
-- the lock too it lives for a day more, for whoever of Java's comes meanwhile is in the same list and set, and would end
-- with them. Java's alone is for ever, as Redisson has it. Each of our scripts that meets the queue sees to that.
local function tend()
    local last = redis.call('ZREVRANGE', waiters, 0, 0, 'WITHSCORES')[2]
    if last and is_foreign_too(name, timeouts, waiters) then
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

-- Takes the dead out: ours whose lease has ended, wherever they stand, and Java's at the head whose score has passed
-- or is missing (which would hold Java up for ever). The head that is left.
local function sweep()
    local swept = false
    for _, dead in ipairs(redis.call('ZRANGEBYSCORE', waiters, '-inf', '(' .. now_ms)) do
        leave(dead)
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
        tend()
    end
    return head
end

local function call_head(head)
    redis.call('PUBLISH', channel .. ':' .. head, '0')
end

-- When the answer to a claim that waits could change by itself: when the holder's lease ends, or that of somebody in
-- the queue. `left` is the holder's, in ms; -1 if it has none (Java forbids that), -2 if nobody holds.
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

-- Limits the poll interval of an unfair claim: it waits in no queue, so no client of another kind wakes it.
local function unfair_poll(after, lease)
    local soonest = math.min(after, lease)
    return soonest > FOREIGN_POLL and is_foreign_too(name, timeouts, waiters) and FOREIGN_POLL or soonest
end

-- By how much Java's score of one of ours exceeds its lease: what those of Java's ahead of it, as they go, will take off.
local function slack_of(owner)
    local score, ends = redis.call('ZSCORE', timeouts, owner), redis.call('ZSCORE', waiters, owner)
    return score and ends and math.max(score - ends, 0) or 0
end

-- The slack of whoever comes to the end of the queue: its predecessor's, and Java's patience for each of Java's between.
local function slack_at_the_end()
    local slack, at = 0, -1
    local other = redis.call('LINDEX', queue, at)
    while other and not redis.call('ZSCORE', waiters, other) do
        slack, at = slack + PATIENCE, at - 1
        other = redis.call('LINDEX', queue, at)
    end
    return other and slack + slack_of(other) or slack
end

-- Places or polls one claim; as a successor it `yields` if others wait. The three numbers that `redisson_acquire` answers before
-- the time.
local function place(owner, lease, not_after, grants, label, fair, yields)
    local held = redis.call('HMGET', name, owner, 'mode')
    local known = redis.call('GET', records .. owner)
    local kind = known and string.sub(known, 1, 1)
    if kind == 'G' and held[1] then
        redis.call('PEXPIRE', name, lease)
        redis.call('PEXPIRE', records .. owner, lease)
        local first, count = string.match(known, '^G:(%d+):(%d+)')
        return 1, tonumber(first), tonumber(count)
    end
    local waits = kind == 'W'
    if known and not waits then
        return 2, 0, 0
    elseif not (known or held[1]) then
        if now > not_after then
            return 3, 0, 0
        elseif held[2] then
            return 4, 0, 0
        end
    end
    local left = held[1] and -2 or redis.call('PTTL', name)
    if left == -1 and not known then
        --: include redisson_owners
        if #owners_of(name) == 0 then
            return 6, 0, 0
        end
    end
    if left ~= -2 and not fair then
        -- Java may shorten a lease: it is not believed for longer than one's own.
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
            leave(owner)
            tend()
            redis.call('DEL', records .. owner)
        end
        redis.call('HSET', name, owner, 1)
        redis.call('PEXPIRE', name, lease)
        return 1, first, grants
    end
    if left == -2 and head and head ~= before and head ~= owner then
        call_head(head)
    end
    if not fair then
        return 0, yields and TURN or unfair_poll(poll_after(left, head), lease), -1
    end
    -- If a script of Java's has taken one of ours for dead, it was the head, and is again.
    local javas = redis.call('ZCARD', timeouts) - redis.call('ZCARD', waiters)
    local slack = javas > 0 and (waits and slack_of(owner) or slack_at_the_end()) or 0
    local ahead = redis.call('LPOS', queue, owner)
    if not ahead and waits then
        redis.call('LPUSH', queue, owner)
        ahead = 0
    elseif not ahead then
        ahead = redis.call('RPUSH', queue, owner) - 1
    end
    -- The score by which Java judges: our own lease, so that Java waits no longer for one of ours that is dead, and the
    -- patience that each of Java's ahead takes off every score when it goes. It is set anew with every poll, so one that is
    -- alive is never stale. At the head nothing more is taken off, and never more than all of Java's could.
    slack = ahead > 0 and math.min(slack, javas * PATIENCE) or 0
    redis.call('ZADD', timeouts, now_ms + lease + slack, owner)
    redis.call('ZADD', waiters, now_ms + lease, owner)
    redis.call('SET', records .. owner, 'W:' .. label, 'PX', lease + REMEMBERED)
    tend()
    local soon = yields and left == -2 and TURN or poll_after(left, ahead > 0 and head or nil)
    if javas > 0 and ahead > 0 and not redis.call('ZSCORE', waiters, redis.call('LINDEX', queue, ahead - 1)) then
        -- One of Java's that gives up tells nobody: who stands behind it looks.
        soon = math.min(soon, FOREIGN_POLL)
    elseif ahead == 0 and soon > FOREIGN_POLL and left ~= -2 and is_held_by_foreign(name) then
        soon = FOREIGN_POLL
    end
    return 0, math.max(1, math.min(soon, math.floor(lease / 3))), ahead
end
