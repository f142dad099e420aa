-- Places a claim on a mutex, or polls one that is there. Redisson's RLock and RFairLock.
--
-- Inputs     KEYS  the lock's name, the token counter
--            ARGV  owner, lease (ms), place_by (µs of TIME), grants, label, '1' if fair else ''
-- Atomicity  one script: whether the claim has ended, holds or may hold, its end and its tokens are one decision.
-- Answer     {1, first token, how many, time}   granted; the lease runs from now on
--            {0, poll after (ms), ahead or -1, time}   waits
--            {2, 0, 0, time} ended   {3, 0, 0, time} too late   {4, 0, 0, time} the key is a read-write lock
-- Closes     a request that was delayed on its way finds its place_by passed, or the record of its end, and cannot
--            bring back what was released; one that is repeated finds its own record, and is answered the same again.
local name, counter = KEYS[1], KEYS[2]
local tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
local queue, records = 'redisson_lock_queue:' .. tag, 'tenure_claim:' .. tag .. ':'
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- The usual case in six calls: nobody holds, nobody queues, and nothing is known of the claim. Numbers are made texts
-- here, since that is dear where a call does it.
local text = string.format
local record = records .. ARGV[1]
if now <= tonumber(ARGV[3]) and call('EXISTS', name, queue, record) == 0 then
    local last = math.max(now, (tonumber(call('GETSET', counter, text('%d', now))) or 0) + ARGV[4])
    if last > now then
        call('GETSET', counter, text('%d', last))
    end
    local first = last - ARGV[4] + 1
    call('PSETEX', record, text('%d', ARGV[2] + 12000), text('%d:', first) .. ARGV[4] .. ':' .. ARGV[5])
    call('HSET', name, ARGV[1], '1')
    call('PEXPIRE', name, ARGV[2])
    return { 1, first, tonumber(ARGV[4]), now }
end
--: include redisson_place
local answer = place(ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6] == '1', false)
answer[4] = now
return answer
