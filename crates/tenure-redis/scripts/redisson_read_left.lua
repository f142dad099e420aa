-- The leases of readers. Included in scripts, which define `tag`.
local function hold_key(owner, number)
    return tag .. ':' .. owner .. ':rwlock_timeout:' .. number
end

-- Returns the rest of the longest lease of a reader's holds (ms); -2 if all have ended.
local function read_left(owner, count)
    local left = -2
    for number = 1, math.min(tonumber(count) or 0, 1000) do
        left = math.max(left, redis.call('PTTL', hold_key(owner, number)))
    end
    return left
end
