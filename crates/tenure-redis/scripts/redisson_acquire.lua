-- Places a claim on a mutex, or polls it: Redisson's RLock and RFairLock.
--
-- Inputs     KEYS  the lock's name, the token counter, the client's record, the key that exists while requests of the
--                  client's ended claims may be in flight
--            ARGV  owner (the claim as `uuid:number`), lease (ms), not_after (µs of TIME), grants (number of tokens); for
--                  a fair claim its label and '1', for an unfair one nothing, or '' twice if more arguments follow. If
--                  the client's record is to be written: the record's time to live (ms) and the client's label
-- Atomicity  one script decides whether the claim has ended, waits or is granted, when its lease ends, and its tokens.
-- Reply      four numbers in one text, because a list costs more; the last one is the time, and the first one says:
--            0 it waits; then after how many ms to poll, and how many claims are ahead (-1 for an unfair claim)
--            1 granted, and the lease starts now; then the first token and the number of tokens
--            4 a lock of another kind; then the kind and 0
--            2 ended, 3 not_after has passed, 5 no token is left, 6 the key is no lock; then 0 twice
-- Closes     the race between a delayed request and the release of its claim: the late request finds its not_after passed,
--            or the record that the claim has ended. A repeated request finds the claim's field and is granted again.
local KEYS, ARGV, call = KEYS, ARGV, redis.call
local name, counter, client_record, in_flight = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, lease, not_after, grants, label, fair, client_ttl, client_label = unpack(ARGV)
local open, close = '{', '}'
if string.find(name, '{', 1, true) then
    open, close = '', ''
end
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
--: include redisson_draw

-- The common case in five calls: the key is free, no client queues, and no request of an ended claim of this client may
-- be in flight. A fair claim may have waited before, so its record is checked. Concatenation is a large part of a
-- script's cost, so each name is made in one expression; numbers are formatted here, because redis.call does it slower.
if
    now <= tonumber(not_after)
    and call('EXISTS', name, in_flight, 'redisson_lock_queue:' .. open .. name .. close) == 0
    and (fair ~= '1' or call('EXISTS', 'tenure_claim:' .. open .. name .. close .. ':' .. owner) == 0)
then
    local text, count = string.format, tonumber(grants)
    local first = draw(count)
    if not first then
        return text('5 0 0 %d', now)
    end
    call('HSET', name, owner, '1')
    call('PEXPIRE', name, lease)
    if client_ttl then
        call('HSET', client_record, 'label', client_label)
        call('PEXPIRE', client_record, math.max(client_ttl, call('PTTL', client_record)))
    end
    return text('1 %d %d %d', first, count, now)
end
local tag = open .. name .. close
-- The common refusal: another claim holds the key, and an unfair claim must wait. This writes no client's record,
-- because only a claim that holds or queues needs one.
if fair ~= '1' and now <= tonumber(not_after) then
    local held, left = redis.pcall('HMGET', name, owner, 'mode', 'tenure:cooldown'), call('PTTL', name)
    if left >= 0 and not (held.err or held[1] or held[2] or held[3]) and call('EXISTS', 'tenure_claim:' .. tag .. ':' .. owner) == 0 then
        --: include redisson_foreign
        left = math.min(left + 1, lease)
        if left > FOREIGN_POLL and is_shared_with_foreign(name, 'redisson_lock_timeout:' .. tag, 'tenure_waiters:' .. tag) then
            left = FOREIGN_POLL
        end
        return string.format('0 %d -1 %d', left, now)
    end
end
--: include redisson_records
--: include redisson_mutex
--: include redisson_place
write_client_record(client_record, client_ttl, client_label)
local code, first, second =
    place(owner, tonumber(lease), tonumber(not_after), tonumber(grants), label or '', fair == '1', false)
return string.format('%d %d %d %d', code, first, second, now)
