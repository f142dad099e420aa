-- Releases and places many unfair claims on mutexes, as far as nothing about them is unusual: those of many callers at once.
--
-- Inputs     KEYS  the token counter, what is known of the claims' client, its doubts, then the lock's name of each claim:
--                  first those that depart, then those to place
--            ARGV  how many depart, of how many of these (the first ones) something was written down, how many tokens
--                  the others want in all, for how long (ms) to keep what is known of the client ('' if nothing changes)
--                  and its label; the owner of each that departs; for each other: owner, lease (ms), place_by (µs of
--                  TIME), grants
-- Atomicity  one script for all; one claim's trouble is no other's.
-- Answer     the time, then one number for each claim. Of one that departed: 1 and how many heard of it. Of the others: the
--            first token (granted: the lease runs from now on), or -1 (too late, and never placed), or -2 and how long it is
--            until it may ask again (ms; held by another). 0 for whatever is unusual: nothing was done, it is to be asked
--            for by itself.
-- Closes     what redisson_release and redisson_acquire close: it does only what they do in their usual cases. Tokens are
--            drawn before the first grant, so a script that was broken off has given none twice.
local counter, departing, noted, wanted = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local call, try, find, text = redis.call, redis.pcall, string.find, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local answer = { now }

-- Before all else is written: a memory that is full, or a disk, then refuses all grants and keeps nobody from leaving.
local first
if wanted > 0 then
    local drawn = try('GET', counter)
    if type(drawn) ~= 'table' then
        first = math.max(now, (tonumber(drawn) or 0) + 1)
        if try('SET', counter, text('%d', first + wanted - 1)).err then
            first = nil
        end
    end
end

for i = 1, departing do
    local name, owner, said = KEYS[i + 3], ARGV[i + 5], 0
    local tag = find(name, '{', 1, true) and name or '{' .. name .. '}'
    -- What is no lock holds nobody: its error is not ours.
    if call('EXISTS', 'redisson_lock_queue:' .. tag) == 0 and try('HDEL', name, owner) == 1 then
        if i <= noted then
            call('HDEL', KEYS[2], owner)
        end
        said = 1 + call('PUBLISH', 'redisson_lock__channel:' .. tag, '0')
    end
    answer[i + 1] = said
end

if first and ARGV[4] ~= '' then
    call('HSET', KEYS[2], 'label', ARGV[5])
    call('PEXPIRE', KEYS[2], math.max(ARGV[4], call('PTTL', KEYS[2])))
end
local doubts = wanted > 0 and call('EXISTS', KEYS[3]) == 1
for i = departing + 1, #KEYS - 3 do
    local name, at, said = KEYS[i + 3], 4 * i - 3 * departing + 2, 0
    local tag, owner = find(name, '{', 1, true) and name or '{' .. name .. '}', ARGV[at]
    local seen = doubts and call('EXISTS', 'tenure_claim:' .. tag .. ':' .. owner) == 1
    if now > tonumber(ARGV[at + 2]) then
        if not seen and try('HEXISTS', name, owner) == 0 then
            said = -1
        end
    elseif call('EXISTS', name, 'redisson_lock_queue:' .. tag) > 0 then
        local held = try('HMGET', name, owner, 'mode')
        if not (seen or held.err or held[1] or held[2]) then
            local left = call('PTTL', name)
            said = left >= 0 and -3 - left or left == -1 and -1002 or 0
        end
    elseif first and not seen then
        call('HSET', name, owner, '1')
        call('PEXPIRE', name, ARGV[at + 1])
        said, first = first, first + ARGV[at + 3]
    end
    answer[i + 1] = said
end
return answer
