-- Releases and places many unfair claims on mutexes, as far as nothing about them is unusual: those of many callers at once.
--
-- Inputs     KEYS  the token counter, then the lock's name of each claim: first those that depart, then those to place
--            ARGV  how many depart, how many tokens the others want in all; for each that departs: owner, how many of
--                  the lock's subscribers are the caller's own; for each other: owner, lease (ms), place_by (µs of
--                  TIME), grants, label
-- Atomicity  one script for all; one claim's trouble is no other's.
-- Answer     the time, then two numbers for each claim. Of one that departed: 1, waiting elsewhere. Of the others:
--            first token, how many (granted: the lease runs from now on), or poll after (ms), 0 (held by another),
--            or 0, 1 (too late, and never placed). 0, 0 for whatever is unusual: nothing was done, it is to be asked for
--            by itself.
-- Closes     what redisson_release and redisson_acquire close: it does only what they do in their usual cases. Tokens are
--            drawn before the first grant, so a script that was broken off has given none twice.
local counter, departing, wanted = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local call, try = redis.call, redis.pcall
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local answer = { now }

-- Before all else is written: a memory that is full, or a disk, then refuses all grants and keeps nobody from leaving.
local first
if wanted > 0 then
    local drawn = try('GET', counter)
    if type(drawn) ~= 'table' then
        first = math.max(now, (tonumber(drawn) or 0) + 1)
        if try('SET', counter, string.format('%d', first + wanted - 1)).err then
            first = nil
        end
    end
end

for i = 1, departing do
    local name, at = KEYS[i + 1], 1 + 2 * i
    local tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
    local owner, others = ARGV[at], nil
    -- What is no lock holds nobody: its error is not ours.
    if call('EXISTS', 'redisson_lock_queue:' .. tag) == 0 and try('HDEL', name, owner) == 1 then
        call('PSETEX', 'tenure_claim:' .. tag .. ':' .. owner, '12000', 'E')
        others = math.max(call('PUBLISH', 'redisson_lock__channel:' .. tag, '0') - ARGV[at + 1], 0)
    end
    answer[2 * i], answer[2 * i + 1] = others and 1 or 0, others or 0
end

-- Most leases are alike, and making a text of a number is dear.
local kept, kept_of
for i = departing + 1, #KEYS - 1 do
    local name, at = KEYS[i + 1], 3 + 2 * departing + 5 * (i - departing - 1)
    local tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
    local owner, lease, grants = ARGV[at], ARGV[at + 1], ARGV[at + 3]
    local record = 'tenure_claim:' .. tag .. ':' .. owner
    answer[2 * i], answer[2 * i + 1] = 0, 0
    if now <= tonumber(ARGV[at + 2]) then
        if call('EXISTS', name, 'redisson_lock_queue:' .. tag, record) > 0 then
            local held = try('HMGET', name, owner, 'mode')
            if not (held.err or held[1] or held[2]) and call('EXISTS', record) == 0 then
                local left = call('PTTL', name)
                answer[2 * i] = left >= 0 and left + 1 or left == -1 and 1000 or 0
            end
        elseif first then
            if lease ~= kept_of then
                kept, kept_of = string.format('%d', lease + 12000), lease
            end
            call('PSETEX', record, kept, string.format('%d:', first) .. grants .. ':' .. ARGV[at + 4])
            call('HSET', name, owner, '1')
            call('PEXPIRE', name, lease)
            answer[2 * i], answer[2 * i + 1] = first, tonumber(grants)
            first = first + grants
        end
    elseif call('EXISTS', record) == 0 and try('HEXISTS', name, owner) == 0 then
        answer[2 * i + 1] = 1
    end
end
return answer
