-- How a semaphore is kept, for redisson_renew. This is the part `kind`, see redisson_mutex.
--: include redisson_permits
local KIND, downgrade = 1, nil
local taken, ends

local function holds(owner)
    use_semaphore(tag)
    taken, ends = permits_of(owner)
    return ends and ends > now_ms
end

local function left_of(owner)
    return ends - now_ms - 1
end

local function extend(owner, lease)
    -- A server with full memory refuses ZADD, unless the script has changed something before.
    redis.call('PEXPIRE', holders, lease)
    set_lease(owner, taken, now_ms + lease + 1)
end
