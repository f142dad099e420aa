-- Releases and places many unfair claims on mutexes, as far as nothing about them is unusual: those of many callers at once.
--
-- Inputs     KEYS  the token counter, what is known of the claims' client, its doubts, then the lock's name of each claim:
--                  first those that depart, then those to place
--            ARGV  how many depart, of how many of these (the first ones) something was written down, how many tokens
--                  the others want in all, the first not_after of theirs (µs of TIME), for how long (ms) to keep what is
--                  known of the client ('' if nothing changes) and its label, the lease (ms) and the grants of each that
--                  is placed ('' where they differ); then each claim's owner; and where they differ, for each that is
--                  placed: lease, grants
-- Atomicity  one script for all; but for the time that has passed, one claim's trouble is no other's.
-- Answer     the time, then one number for each claim. Of one that departed: 1 and how many heard of it. Of the others: the
--            first token (granted: the lease runs from now on), or -1 (the first not_after has passed, and this claim was
--            never placed: it may be asked for by itself if its own has not), or -2 and how long it is until it may ask
--            again (ms; held by another). 0 for whatever is unusual: nothing was done, it is to be asked for by itself.
-- Closes     what redisson_release and redisson_acquire close: it does only what they do in their usual cases. Tokens are
--            drawn before the first grant, so a script that was broken off has given none twice.
local KEYS, ARGV, call, try, find, text = KEYS, ARGV, redis.call, redis.pcall, string.find, string.format
local counter, departing, noted, wanted = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local all, lease, grants = #KEYS - 3, ARGV[7], tonumber(ARGV[8])
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local late = now > tonumber(ARGV[4])
local answer = { now }
--: include redisson_foreign

-- Before all else is written: a memory that is full, or a disk, then refuses all grants and keeps nobody from leaving.
local first
if wanted > 0 and not late then
    local drawn = try('GET', counter)
    if type(drawn) ~= 'table' then
        first = math.max(now, (tonumber(drawn) or 0) + 1)
        local last = first - 1 + wanted
        if last >= 2 ^ 53 or try('SET', counter, text('%d', last)).err then
            first = nil
        end
    end
end

-- Each name is made in one piece, for the texts are a good part of what a script costs.
for i = 1, departing do
    local name, owner, said, open, close = KEYS[i + 3], ARGV[i + 8], 0, '{', '}'
    if find(name, '{', 1, true) then
        open, close = '', ''
    end
    -- What is no lock holds nobody: its error is not ours.
    if call('EXISTS', 'redisson_lock_queue:' .. open .. name .. close) == 0 and try('HDEL', name, owner) == 1 then
        if i <= noted then
            call('DEL', 'tenure_claim:' .. open .. name .. close .. ':' .. owner)
        end
        said = 1 + call('PUBLISH', 'redisson_lock__channel:' .. open .. name .. close, '0')
    end
    answer[i + 1] = said
end

if first and ARGV[5] ~= '' then
    call('HSET', KEYS[2], 'label', ARGV[6])
    call('PEXPIRE', KEYS[2], math.max(ARGV[5], call('PTTL', KEYS[2])))
end
local doubts = wanted > 0 and call('EXISTS', KEYS[3]) == 1
for i = departing + 1, all do
    local name, owner, said, open, close = KEYS[i + 3], ARGV[i + 8], 0, '{', '}'
    if find(name, '{', 1, true) then
        open, close = '', ''
    end
    if not grants then
        lease = ARGV[7 + all + 2 * (i - departing)]
    end
    local seen = doubts and call('EXISTS', 'tenure_claim:' .. open .. name .. close .. ':' .. owner) == 1
    if late then
        if not seen and try('HEXISTS', name, owner) == 0 then
            said = -1
        end
    elseif call('EXISTS', name, 'redisson_lock_queue:' .. open .. name .. close) > 0 then
        local held = try('HMGET', name, owner, 'mode')
        if not (seen or held.err or held[1] or held[2]) then
            local left = call('PTTL', name)
            if left >= FOREIGN_POLL then
                local tag = open .. name .. close
                local timeouts, waiters = 'redisson_lock_timeout:' .. tag, 'tenure_waiters:' .. tag
                local readable, foreign = pcall(is_foreign_too, name, timeouts, waiters)
                if not readable then
                    left = -1
                elseif foreign then
                    left = FOREIGN_POLL - 1
                end
            end
            said = left >= 0 and -3 - left or 0
        end
    elseif first and not seen then
        call('HSET', name, owner, '1')
        call('PEXPIRE', name, lease)
        said, first = first, first + (grants or ARGV[8 + all + 2 * (i - departing)])
    end
    answer[i + 1] = said
end
return answer
