-- Returns mutexes in the layouts `plain` and `spring`, with their holders. Changes nothing.
--
-- Inputs     KEYS  the keys of the locks
-- Reply      as redisson_inspect, without waiters: all are unfair here, and leave nothing in Redis. A holder of the
--            layout `redisson` is shown as one of another kind.
local reply = {}
local name, tag
--: include string_value
--: include redisson_owners

for _, key in ipairs(KEYS) do
    name, tag = key, tag_of(key)
    local left = redis.call('PTTL', name)
    local value = value_of(name)
    local owner, first, count, label = parse(value)
    local holders = {}
    if owner then
        holders[1] = { owner, 'G:' .. first .. ':' .. count .. ':' .. label, '', '', left }
    elseif value and value ~= COOLDOWN then
        holders[1] = { value, '', false, '', left }
    elseif value == nil and redis.pcall('HEXISTS', name, 'mode') == 0 then
        local owners, modes, ends = owners_of()
        for i, one in ipairs(owners) do
            holders[i] = { one, '', false, modes[one], ends[one] }
        end
    end
    if #holders > 0 then
        reply[#reply + 1] = { name, holders }
    elseif #KEYS == 1 and value == nil and redis.pcall('HEXISTS', name, COOLDOWN) ~= 1 then
        reply[1] = { name }
    end
end
return reply
