-- Places a claim on a lock that is no mutex, or polls it. The part `kind` says how the lock is kept.
--
-- Inputs     KEYS  as for redisson_acquire
--            ARGV  owner, lease (ms), not_after (µs of TIME), grants, label, '1' for a fair claim or '', mode ('R' a reader,
--                  'W' a writer); to write the client's record its time to live (ms) and the client's label
-- Atomicity  one script decides whether the claim has ended, waits or is granted, when its lease ends, and its tokens.
-- Reply      that of redisson_acquire; 4, kind, 0, time   a lock of another kind: 0 a mutex
-- Closes     the same races as redisson_acquire.
local name, counter, claims, doubts = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, lease, not_after, grants, label, fair, asked_mode, client_ttl, client_label = unpack(ARGV)
local tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
local queue = 'redisson_lock_queue:' .. tag
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
--: include redisson_draw
--: include kind
--: include redisson_place
mode = asked_mode
write_client_record(claims, client_ttl, client_label)
local code, first, second = place(owner, tonumber(lease), tonumber(not_after), tonumber(grants), label, fair == '1', false)
return string.format('%d %d %d %d', code, first, second, now)
