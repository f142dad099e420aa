-- Keys of a lock's queue, and functions for the records of claims and clients. Included in scripts before the part `kind`;
-- they define `name`, `tag` and `now` (µs).
--
-- A lock's queue has Redisson's keys (the list `queue`, the zset `timeouts` of scores for Redisson) and one of ours:
--   waiters            zset: the members of the queue that are our claims, with the time (ms) when each one's lease ends.
--                      From then on the claim is dead, whatever its score for Redisson says.
local queue, timeouts, waiters = 'redisson_lock_queue:' .. tag, 'redisson_lock_timeout:' .. tag, 'tenure_waiters:' .. tag
--
-- For each claim, at most one record:
--   records .. owner   W:LABEL it waits; W is followed by the mode, if there is one.  E it has ended.  V[BY]
--                      it was evicted; this outlives the lease by 12 s, in which a delayed request can still arrive.
--                      G:FIRST:COUNT:LABEL tokens and label of a granted claim that was renewed; this expires with the
--                      lease, and the release deletes it.
-- A release says by one of these letters, or by two others, what it knows of its claim: '' no request of it can be in
-- flight, N as '' but it has a record, E a request may be in flight, U as E for a claim of unknown kind, V[BY] an eviction.
-- For each client:
--   tenure_client      hash with the client's `label`.
--   tenure_in_flight   exists while a request of an ended claim may be in flight. Only then do the common cases look for
--                      records of ended claims.
local records = 'tenure_claim:' .. tag .. ':'
local now_ms = math.floor(now / 1000)
local RECORD_TTL = 12000
-- The time (ms) after which a successor polls again if it was not granted because others wait. script.rs inserts it.
local TURN = TURN_MS

-- Tells the client of an evicted claim that its claim on this lock may be gone. A user without the permission can still
-- evict. The quotes keep this message from becoming one of a shard, which only clients of that shard would get.
local function report_eviction(owner)
    redis.pcall("PUBLISH", 'tenure:client:' .. string.sub(owner, 1, 36), name)
end

local function client_key(owner)
    return 'tenure_client:' .. string.sub(owner, 1, 36) .. SCOPE
end

-- Returns whether an owner is a claim of ours: Redis then has a record of the claim or its client.
local function is_ours(owner)
    return redis.call('EXISTS', client_key(owner), records .. owner) > 0
end

-- Writes or extends a client's record, if a time to live (ms) is given. The label is '' if the client's claims have
-- different ones.
local function write_client_record(client_record, ttl, label)
    if ttl then
        redis.call('HSET', client_record, 'label', label)
        redis.call('PEXPIRE', client_record, math.max(ttl, redis.call('PTTL', client_record)))
    end
end
--: include redisson_vacate
