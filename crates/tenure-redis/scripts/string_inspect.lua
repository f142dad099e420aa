-- Returns mutexes in the layouts `plain` and `spring`, with their holders. Changes nothing.
--
-- Inputs     KEYS  the keys of the locks
-- Atomicity  one script: each lock is shown as it was at one moment.
-- Reply      as redisson_inspect: for each key {key, time left (ms), holders}, with no list of waiters, because unfair
--            waiters leave nothing in Redis. A holder of the layout `redisson` is shown as one of another kind. Free keys
--            are left out. If KEYS has a single key, which exists and is no mutex: {key}
-- Closes     no race: nothing is decided by the reply.
local reply = {}
--: include string_value

for _, name in ipairs(KEYS) do
    local tag = tag_of(name)
    --: include redisson_owners
    local value = value_of(name)
    local owner, first, count, label = parse(value)
    local holders = {}
    if owner then
        holders[1] = { owner, 'G:' .. first .. ':' .. count .. ':' .. label, '' }
    elseif value and value ~= BAR then
        holders[1] = { value, '', false }
    elseif value == nil and redis.pcall('HEXISTS', name, 'mode') == 0 then
        for i, one in ipairs(owners_of(name)) do
            holders[i] = { one, '', false }
        end
    end
    if #holders > 0 then
        reply[#reply + 1] = { name, redis.call('PTTL', name), holders }
    elseif #KEYS == 1 and value == nil and redis.pcall('HEXISTS', name, BAR) ~= 1 then
        reply[1] = { name }
    end
end
return reply
