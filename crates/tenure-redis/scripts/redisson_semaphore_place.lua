-- Places or polls a claim for permits. Included in redisson_semaphore_acquire and redisson_semaphore_release, which define
-- `name`, `tag`, `now` (µs), `draw`, and the functions of redisson_records and redisson_permits.
--: include redisson_vacate
--: include redisson_queued_kind

-- Returns the reply of `place` for a key that holds no string: three numbers.
local function reply_other_type()
    local fields, left = redis.pcall('HMGET', name, 'mode', BAR, BAR .. ':write'), redis.call('PTTL', name)
    if fields.err then
        return 6, 0, 0
    elseif (fields[2] or fields[3]) and redis.call('HLEN', name) == (fields[1] and 2 or 1) then
        return 0, math.max(left + 1, 1), -1
    elseif fields[1] then
        return 4, -1, 0
    end
    return left == -1 and 6 or 4, 0, 0
end

-- Removes members whose time has come from a zset, at most MAX_TAKE. Returns how many.
local function remove_ended(zset)
    local ended = redis.call('ZRANGEBYSCORE', zset, '-inf', now_ms, 'LIMIT', 0, MAX_TAKE)
    if #ended > 0 then
        redis.call('ZREM', zset, unpack(ended))
    end
    return #ended
end

-- Prepares the semaphore for a claim: removes permits whose lease has ended, and makes the semaphore if there is none.
-- Returns how many permits can be taken; or nil and the reply of `place` if the key is used otherwise.
local function prepare(of)
    local available = redis.pcall('GET', name)
    if type(available) == 'table' then
        return nil, reply_other_type()
    end
    local is_number = available and string.find(available, '^%-?%d+$')
    if available and not (is_number and available + redis.call('ZCARD', permits) == of) then
        local in_use, cooldown = vacate(name, tag)
        if not in_use then
            return nil, 6, 0, 0
        elseif in_use > 0 then
            return nil, 4, in_use, 0
        elseif cooldown then
            redis.call('ZADD', holders, now_ms + cooldown, BAR)
            redis.call('PEXPIRE', holders, cooldown)
        end
        available = false
    end
    local timeouts = 'redisson_lock_timeout:' .. tag
    local waiter = not available and redis.call('ZRANGEBYSCORE', timeouts, now_ms, '+inf', 'LIMIT', 0, 1)[1]
    if waiter then
        -- It queues for a lock of another kind, and is alive.
        return nil, 4, kind_of_waiter(waiter), 0
    end
    local ended = remove_ended(permits)
    if ended > 0 then
        remove_ended(holders)
    end
    if available and ended > 0 then
        available = redis.call('INCRBY', name, ended)
    elseif not available then
        available = of - redis.call('ZCARD', permits)
        redis.call('SET', name, available, 'PXAT', MADE_BY_US)
    end
    return tonumber(available), ended > 0
end

-- `yields` is true for a successor if other clients wait: then it is not granted. Returns the three numbers that
-- redisson_semaphore_acquire replies before the time.
local function place(owner, lease, not_after, grants, take, of, yields)
    local prefix = prefix_of(owner)
    local ids = { permit(prefix, take - 1, true) }
    local ends = redis.call('ZSCORE', permits, ids[1])
    local held, available, ended = ends and tonumber(ends) > now_ms, 0, false
    local record = redis.call('GET', records .. owner)
    local first, count = string.match(held and record or '', '^G:(%d+):(%d+)')
    if record and not first or ends and not held then
        return 2, 0, 0
    elseif not held then
        if now > not_after then
            return 3, 0, 0
        end
        local second, third
        available, ended, second, third = prepare(of)
        if not available then
            return ended, second, third
        end
        local bar = tonumber(redis.call('ZSCORE', holders, BAR) or 0)
        if yields or available < take or bar > now_ms then
            if ended and available > 0 then
                redis.call('PUBLISH', channel, available)
            end
            local soonest = bar > now_ms and bar or redis.call('ZRANGE', permits, 0, 0, 'WITHSCORES')[2]
            return 0, yields and TURN or math.max(math.min(soonest - now_ms, lease), 1), -1
        end
    end
    if not first then
        first, count = draw(grants), grants
    end
    if not first then
        return 5, 0, 0
    end
    for number = 0, take - 2 do
        ids[number + 2] = permit(prefix, number, false)
    end
    local added = set_lease(owner, ids, now_ms + lease + 1)
    available = added > 0 and redis.call('DECRBY', name, added) or available
    if added > 0 and available + added == of then
        -- The first permit makes the key, which expires with the semaphore, as in Redisson.
        local left = redis.call('PTTL', name)
        if left > 0 then
            redis.call('PEXPIRE', permits, left)
        end
    end
    if record then
        redis.call('PEXPIRE', records .. owner, lease)
    end
    if ended and available > 0 then
        redis.call('PUBLISH', channel, available)
    end
    return 1, tonumber(first), tonumber(count)
end
