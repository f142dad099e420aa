-- Places a claim on a mutex, or polls it: the layouts `plain` and `spring`.
--
-- Inputs     as redisson_acquire, always with the label; further keys and arguments are not used
-- Atomicity, Reply and Closes  as redisson_acquire. Clients of other kinds acquire by SET NX: that fails while our
--            claim has set the key, and this script waits while theirs has.
local name, counter = KEYS[1], KEYS[2]
local owner, lease, not_after, grants, label = unpack(ARGV)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
--: include string_value
--: include string_place
local code, first, second = place(owner, tonumber(lease), tonumber(not_after), tonumber(grants), label, false)
return string.format('%d %d %d %d', code, first, second, now)
