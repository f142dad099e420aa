-- Releases one owner of a lock that is no mutex, or all its holders; wakes the next waiter; places a successor, if there is
-- one. The part `kind` says how the lock is kept.
--
-- Inputs     KEYS  as for redisson_release
--            ARGV  as for redisson_release; for a successor the arguments of redisson_acquire_any
-- Atomicity  one script: the release, the message and the successor's grant are one step.
-- Reply      that of redisson_release.
-- Closes     the same races as redisson_release.
local call, name, counter, claims = redis.call, KEYS[1], KEYS[2], KEYS[3]
local owner, ending, own_subscribers, client, cooldown = unpack(ARGV, 1, 5)
local successor, lease, not_after, grants, label, fair, successor_mode, client_ttl, client_label = unpack(ARGV, 6, 14)
local tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
local queue = 'redisson_lock_queue:' .. tag
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local plain = ending == '' or ending == 'N'
local own = tonumber(own_subscribers)
--: include redisson_draw
--: include kind
--: include redisson_place
local held = (plain or ending == 'E') and holds(owner) and drop(owner)
--: include redisson_leave
