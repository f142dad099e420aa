-- Releases and places many claims of one client in one call: releases of holders, and unfair claims to place or poll.
-- Claims that need more than the common case, such as those for a lock with a queue, are left to the caller.
--
-- Inputs     KEYS  the token counter, the client's record, the key that exists while requests of the client's ended claims
--                  may be in flight; then for each claim the lock's name, first of the releases, then of the placements
--            ARGV  number of releases, how many of these (the first ones) have a record, number of tokens of all
--                  placements, their earliest not_after (µs of TIME), time to live (ms) of the client's record or '', its
--                  label, lease (ms) and number of tokens of each placement ('' if the placements differ); then the owner
--                  of each claim; if they differ, lease and tokens of each placement
-- Atomicity  one script for all. Each claim is judged alone, except for the time limit.
-- Reply      the time, then one number for each claim. 0: nothing was done, the caller sends this claim alone. A release:
--            1 + the number of subscribers that received the message. A placement: the first token; -1 if the earliest
--            not_after has passed and no trace of this claim is found; or -2 - n if the key is held: poll after n ms.
-- Closes     the same races as redisson_release and redisson_acquire, because it does only what they do in their common
--            cases. Tokens are drawn before the first grant, so a script that is killed midway grants none twice.
local KEYS, ARGV, call, try, find, text = KEYS, ARGV, redis.call, redis.pcall, string.find, string.format
local counter, client_record, in_flight = KEYS[1], KEYS[2], KEYS[3]
local releases, with_record, tokens = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local first_not_after, client_ttl, client_label = tonumber(ARGV[4]), ARGV[5], ARGV[6]
local all, lease, grants = #KEYS - 3, ARGV[7], tonumber(ARGV[8])
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local too_late = now > first_not_after
local reply = { now }
--: include redisson_foreign

-- Draws all tokens before any other write. If this fails because memory or disk is full, the script only releases.
local first
if tokens > 0 and not too_late then
    local drawn = try('GET', counter)
    if type(drawn) ~= 'table' then
        first = math.max(now, (tonumber(drawn) or 0) + 1)
        local last = first - 1 + tokens
        if last >= 2 ^ 53 or try('SET', counter, text('%d', last)).err then
            first = nil
        end
    end
end

for i = 1, releases do
    local name, owner, code, open, close = KEYS[i + 3], ARGV[i + 8], 0, '{', '}'
    if find(name, '{', 1, true) then
        open, close = '', ''
    end
    -- A key of another type has no holder, so its error counts as "not held".
    if call('EXISTS', 'redisson_lock_queue:' .. open .. name .. close) == 0 and try('HDEL', name, owner) == 1 then
        if i <= with_record then
            call('DEL', 'tenure_claim:' .. open .. name .. close .. ':' .. owner)
        end
        code = 1 + call('PUBLISH', 'redisson_lock__channel:' .. open .. name .. close, '0')
    end
    reply[i + 1] = code
end

if first and client_ttl ~= '' then
    call('HSET', client_record, 'label', client_label)
    call('PEXPIRE', client_record, math.max(client_ttl, call('PTTL', client_record)))
end
local may_be_in_flight = tokens > 0 and call('EXISTS', in_flight) == 1
for i = releases + 1, all do
    local name, owner, code, open, close = KEYS[i + 3], ARGV[i + 8], 0, '{', '}'
    if find(name, '{', 1, true) then
        open, close = '', ''
    end
    if not grants then
        lease = ARGV[7 + all + 2 * (i - releases)]
    end
    local seen = may_be_in_flight and call('EXISTS', 'tenure_claim:' .. open .. name .. close .. ':' .. owner) == 1
    if too_late then
        if not seen and try('HEXISTS', name, owner) == 0 then
            code = -1
        end
    elseif call('EXISTS', name, 'redisson_lock_queue:' .. open .. name .. close) > 0 then
        local held = try('HMGET', name, owner, 'mode')
        if not (seen or held.err or held[1] or held[2]) then
            local left = call('PTTL', name)
            if left >= FOREIGN_POLL then
                local tag = open .. name .. close
                local timeouts, waiters = 'redisson_lock_timeout:' .. tag, 'tenure_waiters:' .. tag
                local readable, foreign = pcall(is_shared_with_foreign, name, timeouts, waiters)
                if not readable then
                    left = -1
                elseif foreign then
                    left = FOREIGN_POLL - 1
                end
            end
            code = left >= 0 and -3 - left or 0
        end
    elseif first and not seen then
        call('HSET', name, owner, '1')
        call('PEXPIRE', name, lease)
        code, first = first, first + (grants or ARGV[8 + all + 2 * (i - releases)])
    end
    reply[i + 1] = code
end
return reply
