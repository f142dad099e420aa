-- Places a claim on a mutex, or polls it: the layouts `plain` and `spring`.
--
-- Inputs     KEYS  the lock's key, the token counter; further ones are not used
--            ARGV  owner (the claim as `uuid:number`), lease (ms), not_after (µs of TIME), grants (number of tokens),
--                  label; further ones are not used
-- Atomicity  one script decides whether the claim has ended, waits or is granted, when its lease ends, and its tokens.
-- Reply      as redisson_acquire
-- Closes     the race between a delayed request and the release of its claim, as redisson_acquire does. Clients that set
--            the key by SET NX find it set, and this script finds it set by them.
local name, counter = KEYS[1], KEYS[2]
local owner, lease, not_after, grants, label = unpack(ARGV)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
--: include string_value
--: include string_place
local code, first, second = place(owner, tonumber(lease), tonumber(not_after), tonumber(grants), label, false)
return string.format('%d %d %d %d', code, first, second, now)
