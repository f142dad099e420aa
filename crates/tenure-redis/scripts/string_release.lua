-- Releases the holder of a mutex in the layouts `plain` and `spring`; wakes our waiters, and those of Spring that listen;
-- places a successor, if there is one.
--
-- Inputs     as redisson_release, and for the successor as string_acquire. The owner of a client of another kind is its
--            value. In place of the caller's UUID: the channels of a release, one a line, ours first
-- Reply      as redisson_release. "How many others wait" counts only those that subscribe to our channel. An eviction
--            that finds a lock of the layout `redisson` leaves it alone: -1 and -1 for a read-write lock, -2 and 0 for a
--            mutex.
-- Closes     the races that redisson_release closes. Only the owner's value is deleted, so a late release frees no other
--            client's lock.
local name, counter = KEYS[1], KEYS[2]
local owner, ending, own_subscribers, channels, cooldown = unpack(ARGV, 1, 5)
local successor, lease, not_after, grants, label = unpack(ARGV, 6, 10)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
--: include string_value
--: include string_place

local evicted = string.sub(ending, 1, 1) == 'V'
local value = value_of(name)
if evicted and value == nil then
    local code = place_on_other_type()
    if code ~= 6 then
        return code == 4 and '-1 -1' or '-2 0'
    end
end
local holder = parse(value)
local held = value and value ~= COOLDOWN and (owner == '' or holder == owner or evicted and value == owner)

-- Writes the record of an ended claim, if a request of it may be in flight or its holder must learn of its eviction.
local ended, record, ttl = string.match(owner, '^' .. CLAIM .. '$'), ending, RECORD_TTL
if evicted and held then
    ended, ttl = holder, RECORD_TTL + math.max(redis.call('PTTL', name), 0)
elseif evicted or ending == 'U' then
    record = 'E'
end
if evicted and held and holder then
    -- Tells the client of the claim that it may be gone; see redisson_records.lua.
    redis.pcall("PUBLISH", 'tenure:client:' .. string.sub(holder, 1, 36), name)
end
if ended and (record == 'E' or evicted) then
    local before = redis.call('GET', record_of .. ended)
    if held or not before or string.sub(before, 1, 1) ~= 'V' then
        redis.call('SET', record_of .. ended, record, 'PX', ttl)
    end
end
if held and tonumber(cooldown or 0) > 0 then
    redis.call('SET', name, COOLDOWN, 'PX', cooldown)
elseif held then
    redis.call('DEL', name)
end

local subscribers = redis.call('PUBSUB', 'NUMSUB', string.match(channels, '^[^\n]+'))[2]
local others = math.max(subscribers - tonumber(own_subscribers), 0)
local freed = held and 1 or 0
local reply = freed .. ' ' .. others
if owner == '' then
    reply = { held and { { holder or value, holder and 1 or 0 } } or {}, others }
end
if successor then
    local code, first, second =
        place(successor, tonumber(lease), tonumber(not_after), tonumber(grants), label, others > 0)
    reply = reply .. string.format(' %d %d %d %d', code, first, second, now)
    if code == 1 then
        return reply
    end
end
if held then
    for channel in string.gmatch(channels, '[^\n]+') do
        redis.call('PUBLISH', channel, name)
    end
end
return reply
