-- Draws tokens that are above all earlier ones. The last of them is not below the server's time. Included in scripts, which
-- define `counter` (a key) and `now` (µs).
--
-- Returns the first of `grants` consecutive tokens; or nil, without any change, if one would be 2^53 or more.
local function draw(grants)
    local before = redis.call('GETSET', counter, string.format('%d', now))
    local last = math.max(now, (tonumber(before) or 0) + grants)
    if last >= 2 ^ 53 then
        redis.call('GETSET', counter, before)
        return nil
    elseif last > now then
        redis.call('GETSET', counter, string.format('%d', last))
    end
    return last - grants + 1
end
