-- Draws tokens: above all before, and not below the server's time. Part of scripts: expects `counter` and `now` (µs).
--
-- Returns the first of `grants` consecutive tokens, or nil and does nothing where one of them cannot be counted exactly.
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
