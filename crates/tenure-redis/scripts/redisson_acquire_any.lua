-- As redisson_acquire, for a lock that is no mutex. The part `kind` says how the lock is kept. ARGV always has the label,
-- '1' for a fair claim or '', and the mode: 'R' a reader, 'W' a writer, or for permits `TAKE/SIZE`.
local call, name, counter, client_record, in_flight = redis.call, KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, lease, not_after, grants, label, fair, asked_mode, client_ttl, client_label = unpack(ARGV)
local tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
--: include redisson_draw
--: include redisson_records
--: include kind
--: include redisson_place
mode = asked_mode
write_client_record(client_record, client_ttl, client_label)
local code, first, second = place(owner, tonumber(lease), tonumber(not_after), tonumber(grants), label, fair == '1', false)
return string.format('%d %d %d %d', code, first, second, now)
