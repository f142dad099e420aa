-- Finds out the kind of lock that a key is used as. Included in scripts, which define `name`, `tag`, `queue` and `vacate_for_hash`.

-- Returns the kind of lock for which a claim waits in the queue: 0 a mutex, -1 a read-write lock.
local function kind_of_waiter(owner)
    local record = redis.call('GET', 'tenure_claim:' .. tag .. ':' .. owner)
    return record and string.find(record, '^W[RW]:') and -1 or 0
end

-- Returns the kind of lock that the key is; nil if it is free or in a cooldown, and has no queue.
local function kind_of_key()
    local type = redis.call('TYPE', name).ok
    local is_hash, size = type == 'hash', type == 'string' and vacate_for_hash(name, tag) or 0
    if size > 0 then
        return size
    end
    if is_hash and redis.call('HEXISTS', name, 'mode') == 1 then
        return -1
    elseif is_hash and redis.call('HEXISTS', name, 'tenure:bar') == 0 then
        return 0
    end
    local head = redis.call('LINDEX', queue, 0)
    return head and kind_of_waiter(head)
end
