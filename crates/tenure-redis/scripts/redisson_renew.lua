-- Keeps claims on mutexes alive, each judged by itself.
--
-- Inputs     KEYS  the token counter, what is known of the claims' client, then the lock's name of each claim
--            ARGV  the client's label; for each claim: owner, lease (ms), phase ('W' waiting, 'G' granted, 'E' either), '1'
--                  if its lease is only to be shortened or '', last token to raise to ('' if none), and its record while
--                  it is granted, G:FIRST:COUNT:LABEL ('' to leave that as it is)
-- Atomicity  one script for all; one claim's trouble is no other's.
-- Answer     the time, then for each claim: below zero alive, -1 - its lease (ms); 1 not there, 2 its lease ended while it
--            waited, 3 a raise beyond what can be counted exactly, 4 it is in another phase, the text 'V' and who evicted
--            it, or the text 'R' and why the server refused
-- Closes     only a field that is there is kept alive: a renewal that was under way when the lock was released, or came
--            too late, brings nothing back, and no record.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local now_ms = math.floor(now / 1000)
local counter, claims = KEYS[1], KEYS[2]
local answer = { now }
local longest = 0

local function lift(last)
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

local function renew(name, owner, lease, phase, shorten, last, granted)
    local tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
    local record = 'tenure_claim:' .. tag .. ':' .. owner
    -- What is no lock any more holds nobody. What may not be looked at says nothing.
    local held = redis.pcall('HEXISTS', name, owner)
    if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
        return 'R' .. held.err
    elseif held == 1 then
        if phase == 'W' then
            return 4
        elseif last and last >= 2 ^ 53 then
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
        if last then
            lift(last)
        end
        -- A server whose memory is full refuses this, and the claim lives all the same.
        if granted ~= '' then
            redis.pcall('SET', record, granted, 'PX', math.max(lease, 1))
        else
            redis.pcall('PEXPIRE', record, lease)
        end
        return -1 - lease
    end
    local known = redis.call('GET', record)
    local kind = known and string.sub(known, 1, 1)
    if not known or kind == 'E' then
        return 1
    elseif kind == 'G' then
        redis.call('DEL', record)
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
    elseif last and last >= 2 ^ 53 then
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
    if last then
        lift(last)
    end
    return -1 - lease
end

for i = 3, #KEYS do
    local at = (i - 3) * 6 + 2
    local owner, lease, phase, shorten, last, granted = unpack(ARGV, at, at + 5)
    local done, said = pcall(renew, KEYS[i], owner, tonumber(lease), phase, shorten == '1', tonumber(last), granted)
    answer[i - 1] = done and said or 'R' .. (type(said) == 'table' and said.err or tostring(said))
end
-- What is known of the client outlives its longest lease. Whoever emptied the server took that away, too.
local left = redis.call('PTTL', claims)
if longest > 0 and longest + 12000 > left then
    if left == -2 then
        redis.pcall('HSET', claims, 'label', ARGV[1])
    end
    redis.call('PEXPIRE', claims, longest + 12000)
end
return answer
