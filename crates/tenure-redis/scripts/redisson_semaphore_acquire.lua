-- Places a claim on a semaphore, or polls it: Redisson's RPermitExpirableSemaphore. Unfair only.
--
-- Inputs     as redisson_acquire, with the number of permits to take and the semaphore's size in place of label and '1'
-- Atomicity  one script decides whether the claim has ended, waits or is granted, when its lease ends, and its tokens.
-- Reply      as redisson_acquire. A semaphore of another size has another kind, which is its size.
-- Closes     the races that redisson_acquire closes. A permit whose lease has ended is not free until a script has removed
--            it and raised the number of free ones in the same step; a claim removes at most MAX_TAKE of them.
local name, counter, claims = KEYS[1], KEYS[2], KEYS[3]
local owner, lease, not_after, grants, take, of, client_ttl, client_label = unpack(ARGV)
local tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local channel = 'redisson_sc:' .. tag
--: include redisson_draw
--: include redisson_records
--: include redisson_permits
--: include redisson_vacate
--: include redisson_semaphore_place
use_semaphore(tag)
write_client_record(claims, client_ttl, client_label)
local code, first, second =
    place(owner, tonumber(lease), tonumber(not_after), tonumber(grants), tonumber(take), tonumber(of), false)
return string.format('%d %d %d %d', code, first, second, now)
