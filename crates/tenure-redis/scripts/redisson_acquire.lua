-- Places a claim on a mutex, or polls one that is there. Redisson's RLock and RFairLock.
--
-- Inputs     KEYS  the lock's name, the token counter, what is known of the claim's client, its doubts
--            ARGV  owner, lease (ms), place_by (µs of TIME), grants, label, '1' if fair else ''; and for how long (ms) to keep
--                  what is known of the client, and its label, if it is to be said
-- Atomicity  one script: whether the claim has ended, holds or may hold, its end and its tokens are one decision.
-- Answer     {1, first token, how many, time}   granted; the lease runs from now on
--            {0, poll after (ms), ahead or -1, time}   waits
--            {2, 0, 0, time} ended   {3, 0, 0, time} too late   {4, 0, 0, time} the key is a read-write lock
-- Closes     a request that was delayed on its way finds its place_by passed, or the record of its end, and cannot
--            bring back what was released; one that is repeated finds its own field, and is granted again.
local name, counter, claims = KEYS[1], KEYS[2], KEYS[3]
local tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
local queue = 'redisson_lock_queue:' .. tag
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- The usual case in five calls: nobody holds, nobody queues, and no request of the client's is in doubt. One that is fair
-- may have waited before. Numbers are made texts here, since that is dear where a call does it.
if
    now <= tonumber(ARGV[3])
    and call('EXISTS', name, queue, KEYS[4]) == 0
    and (ARGV[6] == '' or call('EXISTS', 'tenure_claim:' .. tag .. ':' .. ARGV[1]) == 0)
then
    local text = string.format
    local last = math.max(now, (tonumber(call('GETSET', counter, text('%d', now))) or 0) + ARGV[4])
    if last > now then
        call('GETSET', counter, text('%d', last))
    end
    call('HSET', name, ARGV[1], '1')
    call('PEXPIRE', name, ARGV[2])
    if ARGV[7] then
        call('HSET', claims, 'label', ARGV[8])
        call('PEXPIRE', claims, math.max(ARGV[7], call('PTTL', claims)))
    end
    return { 1, last - ARGV[4] + 1, tonumber(ARGV[4]), now }
end
--: include redisson_place
keep(claims, ARGV[7], ARGV[8])
local answer = place(claims, ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6] == '1', false)
answer[4] = now
return answer
