-- Places a claim on a mutex, or polls one that is there. Redisson's RLock and RFairLock.
--
-- Inputs     KEYS  the lock's name, the token counter, what is known of the claim's client, its doubts
--            ARGV  owner, lease (ms), not_after (µs of TIME), grants; its label and '1' if it is fair, or two '' if it is
--                  not and more follows; and if it is to be said, for how long (ms) to keep what is known of the client,
--                  and the client's label
-- Atomicity  one script: whether the claim has ended, holds or may hold, its end and its tokens are one decision.
-- Answer     four numbers in one text, with blanks between: a list would cost the server several microseconds more.
--            1, first token, how many, time   granted; the lease runs from now on
--            0, poll after (ms), ahead or -1, time   waits
--            2, 0, 0, time   ended      3, 0, 0, time   too late      4, 0, 0, time   the key is a read-write lock
--            5, 0, 0, time   no further token can be counted exactly, and nothing was done
--            6, 0, 0, time   the key is no lock
-- Closes     a request that was delayed on its way finds its not_after passed, or the record of its end, and cannot
--            bring back what was released; one that is repeated finds its own field, and is granted again.
local KEYS, ARGV, call = KEYS, ARGV, redis.call
local name, counter, claims, open, close = KEYS[1], KEYS[2], KEYS[3], '{', '}'
if string.find(name, '{', 1, true) then
    open, close = '', ''
end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
--: include redisson_draw

-- The usual case in five calls: nobody holds, nobody queues, and no request of the client's is in doubt. One that is fair
-- may have waited before. Texts are a good part of what a script costs: each name is made in one piece, and numbers are
-- made texts here, since that is dear where a call does it.
if
    now <= tonumber(ARGV[3])
    and call('EXISTS', name, KEYS[4], 'redisson_lock_queue:' .. open .. name .. close) == 0
    and (ARGV[6] ~= '1' or call('EXISTS', 'tenure_claim:' .. open .. name .. close .. ':' .. ARGV[1]) == 0)
then
    local text, grants = string.format, tonumber(ARGV[4])
    local first = draw(grants)
    if not first then
        return text('5 0 0 %d', now)
    end
    call('HSET', name, ARGV[1], '1')
    call('PEXPIRE', name, ARGV[2])
    if ARGV[7] then
        call('HSET', claims, 'label', ARGV[8])
        call('PEXPIRE', claims, math.max(ARGV[7], call('PTTL', claims)))
    end
    return text('1 %d %d %d', first, grants, now)
end
local tag = open .. name .. close
local queue = 'redisson_lock_queue:' .. tag
--: include redisson_place
keep(claims, ARGV[7], ARGV[8])
local lease, not_after, grants = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local code, first, second = place(ARGV[1], lease, not_after, grants, ARGV[5] or '', ARGV[6] == '1', false)
return string.format('%d %d %d %d', code, first, second, now)
