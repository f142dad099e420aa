-- Releases the permits of one owner, or of all; wakes waiters; places a successor, if there is one.
--
-- Inputs     as redisson_release; the successor's as redisson_semaphore_acquire
-- Atomicity  one script: the release, the message and the successor's grant are one step.
-- Reply      as redisson_release
-- Closes     the races that redisson_release closes. Permits and the number of free ones change in one step, so none is
--            lost or counted twice. The permits of an evicted holder stay taken during the cooldown, also for Redisson.
local name, counter, claims = KEYS[1], KEYS[2], KEYS[3]
local owner, ending, own_subscribers, client, cooldown = unpack(ARGV, 1, 5)
local successor, lease, not_after, grants, take, of, client_ttl, client_label = unpack(ARGV, 6, 13)
local tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
local plain = ending == '' or ending == 'N'
local evicted = string.sub(ending, 1, 1) == 'V'
if (evicted or ending == 'U') and redis.call('TYPE', name).ok == 'hash' then
    return redis.call('HEXISTS', name, 'mode') == 1 and '-1 -1' or '-1 0'
end
ending = ending == 'U' and 'E' or ending
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local channel, queue = 'redisson_sc:' .. tag, 'redisson_lock_queue:' .. tag
--: include redisson_draw
--: include redisson_records
--: include redisson_permits
--: include redisson_semaphore_place
--: include redisson_end
use_semaphore(tag)

-- Frees the permits of one owner. During a cooldown others, of no client, stay taken in their place. Returns the ms that
-- were left of the lease, nil if it had ended.
local freed, barred = 0, 0
local function free(one)
    local ids, ends = permits_of(one)
    local left = ends and ends > now_ms and ends - now_ms or nil
    if #ids == 0 then
        return nil
    end
    redis.call('ZREM', permits, unpack(ids))
    redis.call('ZREM', holders, one)
    if left and tonumber(cooldown or 0) > 0 then
        for i = 1, #ids do
            ids[i] = BAR .. struct.pack('>I3I3', now % 2 ^ 24, barred + i)
        end
        barred = barred + set_lease(BAR, ids, now_ms + cooldown + 1)
    else
        freed = freed + #ids
    end
    return left
end

local reply
if owner == '' then
    reply = {}
    local owners = redis.call('ZRANGEBYSCORE', holders, '(' .. now_ms, '+inf')
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', permits, '(' .. now_ms, '+inf')) do
        if string.sub(id, 1, #BAR) ~= BAR then
            owners[#owners + 1] = in_hex(id)
        end
    end
    for _, one in ipairs(owners) do
        local left = one ~= BAR and free(one)
        if left then
            reply[#reply + 1] = { one, string.find(one, '-', 1, true) and 1 or 0 }
            end_claim(one, left)
        end
    end
else
    local left = free(owner)
    reply = left and 1 or 0
    if left then
        end_claim(owner, left)
    elseif string.sub(redis.call('GET', records .. owner) or '', 1, 1) ~= 'V' then
        -- The owner holds nothing. A request that places it may still arrive.
        ending, evicted = evicted and 'E' or ending, false
        end_claim(owner, 0)
    end
end
local available = 0
if freed > 0 and redis.call('EXISTS', name) == 1 then
    available = redis.call('INCRBY', name, freed)
end
-- Only waiters for a lock of another kind queue, if the key has become one since.
local others = math.max(redis.call('PUBSUB', 'NUMSUB', channel)[2] - own_subscribers, 0)
for _, waiter in ipairs(redis.call('LRANGE', queue, 0, 99)) do
    others = others + (string.sub(waiter, 1, 36) ~= client and 1 or 0)
end
reply = owner == '' and { reply, others } or reply .. ' ' .. others
if successor then
    write_client_record(claims, client_ttl, client_label)
    local code, first, second = place(
        successor, tonumber(lease), tonumber(not_after), tonumber(grants), tonumber(take), tonumber(of), others > 0
    )
    reply = reply .. string.format(' %d %d %d %d', code, first, second, now)
    available = tonumber(redis.pcall('GET', name)) or 0
end
-- A message tells how many permits can be taken. Redisson wakes as many waiters, and fails at a negative number.
local wake = math.max(available, 0) + barred
if freed + barred > 0 and wake > 0 then
    redis.call('PUBLISH', channel, wake)
end
return reply
