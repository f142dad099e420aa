-- Keeps claims on mutexes alive, each judged by itself.
--
-- Inputs     KEYS  the token counter, what is known of the claims' client, then the lock's name of each claim
--            ARGV  for each claim: owner, lease (ms), phase ('W' waiting, 'G' granted, 'E' either), '1' if its lease is
--                  only to be shortened or '', first token and how many to raise to ('' and '' if none)
-- Atomicity  one script for all; one claim's trouble is no other's.
-- Answer     the time, 1 if anything is known of the client or else 0, then for each claim: below zero
--            alive, -1 - its lease (ms); 1 not there, 2 its lease ended while it waited, 3 a raise beyond what can be
--            counted exactly, 4 it is in another phase, the text 'V' and who evicted it, or the text 'R' and why the
--            server refused
-- Closes     only a field that is there is kept alive: a renewal that was under way when the lock was released, or came
--            too late, brings nothing back.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local now_ms = math.floor(now / 1000)
local counter, claims = KEYS[1], KEYS[2]
local answer = { now, redis.call('EXISTS', claims) }
local longest = 0

local function lift(first, count)
    local last = first + count - 1
    if last > (tonumber(redis.call('GET', counter)) or 0) then
        redis.call('SET', counter, last)
    end
end

-- The queue lives at least as long as who holds and the last of ours in it, and a day more if Java's are in it too.
local function lengthen(tag, lease)
    local queue, timeouts, waiters = 'redisson_lock_queue:' .. tag, 'redisson_lock_timeout:' .. tag, 'tenure_waiters:' .. tag
    local left = redis.call('PTTL', queue)
    if left < 0 then
        return
    end
    local javas = redis.call('ZCARD', timeouts) > redis.call('ZCARD', waiters)
    local least = lease + (javas and 86400000 or 1000)
    if left < least then
        for _, key in ipairs({ queue, timeouts, waiters }) do
            redis.call('PEXPIRE', key, least)
        end
    end
end

local function renew(name, owner, lease, phase, shorten, first, count)
    local tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
    local record = 'tenure_claim:' .. tag .. ':' .. owner
    -- What is no lock any more holds nobody. What may not be looked at says nothing.
    local held = redis.pcall('HEXISTS', name, owner)
    if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
        return 'R' .. held.err
    elseif held == 1 then
        if phase == 'W' then
            return 4
        elseif first and first + count > 9007199254740992 then
            return 3
        end
        local left = shorten and redis.call('PTTL', name) or -1
        if left >= 0 and left <= lease then
            lease = left
        else
            redis.call('PEXPIRE', name, lease)
        end
        lengthen(tag, lease)
        longest = math.max(longest, lease)
        if first then
            lift(first, count)
            local label = string.match(redis.call('HGET', claims, owner) or '', '^%d+:%d+:(.*)')
            label = label or redis.call('HGET', claims, 'label') or ''
            redis.call('HSET', claims, owner, string.format('%.0f:%d:%s', first, count, label))
        end
        return -1 - lease
    end
    local known = redis.call('GET', record)
    local kind = known and string.sub(known, 1, 1)
    if not known or kind == 'E' then
        redis.call('HDEL', claims, owner)
        return 1
    elseif kind == 'V' then
        return known
    end
    local waiters = 'tenure_waiters:' .. tag
    local ends = redis.call('ZSCORE', waiters, owner)
    if not ends or tonumber(ends) < now_ms then
        return 2
    elseif phase == 'G' then
        return 4
    elseif first and first + count > 9007199254740992 then
        return 3
    end
    local timeouts = 'redisson_lock_timeout:' .. tag
    if shorten then
        lease = math.min(lease, ends - now_ms)
    end
    redis.call('ZADD', waiters, now_ms + lease, owner)
    -- Java's score goes with it.
    if redis.call('ZSCORE', timeouts, owner) then
        redis.call('ZINCRBY', timeouts, now_ms + lease - ends, owner)
    end
    redis.call('PEXPIRE', record, lease + 12000)
    lengthen(tag, lease)
    if first then
        lift(first, count)
    end
    return -1 - lease
end

for i = 3, #KEYS do
    local owner, lease, phase, shorten, first, count = unpack(ARGV, (i - 3) * 6 + 1, (i - 2) * 6)
    local done, said = pcall(renew, KEYS[i], owner, tonumber(lease), phase, shorten == '1', tonumber(first), tonumber(count))
    answer[i] = done and said or 'R' .. (type(said) == 'table' and said.err or tostring(said))
end
-- What is known of the client outlives its longest lease.
if longest + 12000 > redis.call('PTTL', claims) then
    redis.call('PEXPIRE', claims, longest + 12000)
end
return answer
