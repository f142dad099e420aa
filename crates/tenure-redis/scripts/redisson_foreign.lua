-- Finds out whether clients of other kinds, such as Redisson's, use a lock. Included in scripts.
--
-- Such a client may release the lock without publishing to our waiters: a fair unlock of Redisson's publishes only to the
-- next fair waiter. A waiter that could miss a release for that reason polls every FOREIGN_POLL ms.
local FOREIGN_POLL = 1000

-- Returns whether a client of another kind holds the lock. A holder is ours if Redis has a record of it or its client.
local function is_held_by_foreign(name)
    local count = redis.pcall('HLEN', name)
    if type(count) == 'table' or count > 64 then
        -- A key that is no hash is a semaphore: no waiter misses a release there, because each one wakes all unfair
        -- waiters. A hash with more than 64 fields is not read, and counts as held by a client of another kind.
        return type(count) ~= 'table'
    end
    local no_client = { mode = true, ['tenure:cooldown'] = true, ['tenure:cooldown:write'] = true }
    local records = 'tenure_claim:' .. (string.find(name, '{', 1, true) and name or '{' .. name .. '}') .. ':'
    local fields = redis.call('HGETALL', name)
    for i = 1, #fields, 2 do
        local client_record = 'tenure_client:' .. string.sub(fields[i], 1, 36) .. SCOPE
        if not no_client[fields[i]] and redis.call('EXISTS', client_record, records .. fields[i]) == 0 then
            return true
        end
    end
    return false
end

-- Returns whether a client of another kind queues for the lock or holds it.
local function is_shared_with_foreign(name, timeouts, waiters)
    return redis.call('ZCARD', timeouts) > redis.call('ZCARD', waiters) or is_held_by_foreign(name)
end
