-- Renews claims, holders and waiters, of one client on locks of one kind. Each claim is judged alone. The part `kind` says
-- how the locks are kept.
--
-- Inputs     KEYS  the token counter ('' for the counter of each lock, RFencedLock's), the record of the claims' client,
--                  then the lock's name of each claim
--            ARGV  as described in renew_each
-- Atomicity  one script for all. A failure of one claim does not affect the others.
-- Reply      the time, then the result for each claim, or one result if all have the same: -1 - n if it is alive, with n
--            ms of lease from now on; 1 absent; 2 its lease ended while it waited; 3 the counter would be raised beyond
--            what can be counted exactly; 4 it is in another phase; 5 it holds and cannot be downgraded; the text 'V'
--            and who evicted it; or the text 'R' and the server's error
-- Closes     the race between a renewal and the release: only a holder whose field exists is renewed, so a late renewal
--            restores neither the lock nor its record.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local now_ms = math.floor(now / 1000)
local counter, client_record = KEYS[1], KEYS[2]
local reply = { now }
local longest = 0
local name, tag, queue, timeouts, waiters
--: include kind

local function raise_counter(last)
    local counter = counter ~= '' .. SCOPE and counter or 'redisson_lock_token:' .. tag
    if last > (tonumber(redis.call('GET', counter)) or 0) then
        redis.call('SET', counter, last)
    end
end

-- Makes the queue's keys live at least 1 s longer than the renewed lease, or a day longer if Redisson's clients wait in the
-- queue.
local function extend_queue(lease)
    local left = redis.call('PTTL', queue)
    if left < 0 then
        return
    end
    local javas = redis.call('ZCARD', timeouts) > redis.call('ZCARD', waiters)
    local needed = lease + (javas and 86400000 or 1000)
    if left < needed then
        for _, key in ipairs({ queue, timeouts, waiters }) do
            redis.call('PEXPIRE', key, needed)
        end
    end
end

local function renew(key, owner, lease, phase, shorten, last, granted)
    name = key
    tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
    queue, timeouts, waiters = 'redisson_lock_queue:' .. tag, 'redisson_lock_timeout:' .. tag, 'tenure_waiters:' .. tag
    local record = 'tenure_claim:' .. tag .. ':' .. owner
    local held, ends = holds(owner), nil
    if not held then
        local found = redis.call('GET', record)
        local kind = found and string.sub(found, 1, 1)
        if not found or kind == 'E' then
            return 1
        elseif kind == 'G' then
            redis.call('DEL', record)
            return 1
        elseif kind == 'V' then
            return found
        end
        ends = redis.call('ZSCORE', waiters, owner)
        if not ends or tonumber(ends) < now_ms then
            return 2
        end
    end
    if held and phase == 'W' or not held and (phase == 'G' or phase == 'D') then
        return 4
    elseif phase == 'D' and own_kind ~= -1 then
        return 5
    elseif last and last >= 2 ^ 53 then
        return 3
    end
    if held then
        local left = shorten and left_of(owner) or -1
        if left >= 0 and left <= lease then
            lease = left
        end
        if phase == 'D' then
            downgrade(owner, lease)
        elseif lease ~= left then
            extend(owner, lease)
        end
        longest = math.max(longest, lease)
    else
        if shorten then
            lease = math.min(lease, ends - now_ms)
        end
        redis.call('ZADD', waiters, now_ms + lease, owner)
        -- Moves the waiter's score for Redisson by as much as the end of its lease moved.
        if redis.call('ZSCORE', timeouts, owner) then
            redis.call('ZINCRBY', timeouts, now_ms + lease - ends, owner)
        end
        redis.call('PEXPIRE', record, lease + 12000)
    end
    extend_queue(lease)
    if last then
        raise_counter(last)
    end
    -- A server with full memory refuses to write the record. The claim is alive nevertheless.
    if held and granted then
        redis.pcall('SET', record, granted, 'PX', math.max(lease, 1))
    elseif held then
        redis.pcall('PEXPIRE', record, lease)
    end
    return -1 - lease
end

--: include renew_each
-- Makes the client's record outlive the renewed leases of its holders by 12 s. If the server has lost the record,
-- writes it again.
local left = redis.call('PTTL', client_record)
if longest > 0 and longest + 12000 > left then
    if left == -2 then
        redis.pcall('HSET', client_record, 'label', ARGV[1])
    end
    redis.call('PEXPIRE', client_record, longest + 12000)
end
return shortened()
