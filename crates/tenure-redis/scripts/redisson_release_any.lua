-- As redisson_release, for a lock that is no mutex; for a successor ARGV goes on as in redisson_acquire_any.
local call, name, counter, client_record = redis.call, KEYS[1], KEYS[2], KEYS[3]
local owner, ending, own_subscribers, client, cooldown = unpack(ARGV, 1, 5)
local successor, lease, not_after, grants, label, fair, successor_mode, client_ttl, client_label = unpack(ARGV, 6, 14)
local tag = string.find(name, '{', 1, true) and name or '{' .. name .. '}'
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local plain = ending == '' or ending == 'N'
local own = tonumber(own_subscribers)
--: include redisson_draw
--: include redisson_records
--: include kind
local held = (plain or ending == 'E') and holds(owner) and drop(owner)
-- The common case: a holder leaves without a successor, and no client queues.
if held and plain and not cooldown and call('EXISTS', queue) == 0 then
    if ending == 'N' then
        call('DEL', records .. owner)
    end
    local receivers = settle() and call('PUBLISH', CHANNEL .. tag, payload)
        or call('PUBSUB', 'NUMSUB', CHANNEL .. tag)[2]
    return '1 ' .. math.max(receivers - own, 0)
end
--: include redisson_place
--: include redisson_leave
