-- How a mutex is kept: Redisson's RLock and RFairLock. Each kind of lock has such a part; scripts for several kinds include
-- it with `--: include kind`. They define `name` and `tag`.
--
-- `own_kind` is the kind's code in replies; CHANNEL, with the tag, the channel of unfair waiters; `mode` the mode of the
-- placed claim; `payload` the message of a release.
local own_kind, CHANNEL, mode, payload = 0, 'redisson_lock__channel:', '', '0'
--: include redisson_owners

-- Returns whether the claim holds the lock.
local function holds(owner)
    local found = fields_of(owner, 'mode')
    return found[1] and not found[2]
end

-- Returns the rest of a holder's lease (ms).
local function left_of(owner)
    return redis.call('PTTL', name)
end

-- Sets the lease of a holder. A server with full memory permits this.
local function extend(owner, lease)
    redis.call('PEXPIRE', name, lease)
end

-- Grants the lock to a claim.
local function hold(owner, lease)
    redis.call('HSET', name, owner, 1)
    extend(owner, lease)
end

local downgrade

-- Returns whether a grant leaves the lock open for other claims.
local function is_open()
    return false
end

-- Returns whether the claim holds. If not: for how many ms the lock cannot be granted to it (-2 if it can, -1 without end),
-- the kind of the key if it is another one, and whether nothing but a cooldown holds the key.
local function look(owner)
    local found = redis.call('HMGET', name, owner, 'mode', 'tenure:cooldown', 'tenure:cooldown:write')
    if found[1] and not found[2] then
        return true, -2
    end
    local cools = found[3] or found[4]
    if found[2] then
        cools = cools and redis.call('HLEN', name) == 2
    end
    return false, redis.call('PTTL', name), found[2] and not cools and -1, cools
end

-- Removes a holder. The caller then calls `settle`, which returns whether a waiter may now be granted the lock.
local function drop(owner)
    return redis.call('HDEL', name, owner) == 1
end
local function settle()
    return true
end

-- The time (ms) for which Redisson lets a waiter stand at the head of the queue (fairLockWaitTimeout), by the
-- clock of that waiter's machine.
local REDISSON_TIMEOUT = 300000

-- Returns the slack of our waiter: the ms by which its score for Redisson exceeds the end of its lease. When a
-- Redisson waiter leaves the queue, Redisson lowers the scores of the waiters behind it; the slack makes up for that.
local function slack_of(owner)
    local score, ends = redis.call('ZSCORE', timeouts, owner), redis.call('ZSCORE', waiters, owner)
    return score and ends and math.max(score - ends, 0) or 0
end

-- Returns the slack of a claim that enters the queue: that of our last waiter, plus REDISSON_TIMEOUT for each Redisson waiter
-- behind our last one.
local function slack_of_newcomer()
    local slack, at = 0, -1
    local other = redis.call('LINDEX', queue, at)
    while other and not redis.call('ZSCORE', waiters, other) do
        slack, at = slack + REDISSON_TIMEOUT, at - 1
        other = redis.call('LINDEX', queue, at)
    end
    return other and slack + slack_of(other) or slack
end
