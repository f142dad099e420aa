-- Renews holders of mutexes in the layouts `plain` and `spring`. Inputs and reply are those of redisson_renew. Only a value
-- that names the claim is renewed, so a late renewal restores no lock.
local time = redis.call('TIME')
local reply = { time[1] * 1000000 + time[2] }
local counter = KEYS[1]
--: include string_value

local function renew(name, owner, lease, phase, shorten, last, granted)
    local holder = parse(value_of(name))
    if holder ~= owner then
        local record = redis.call('GET', 'tenure_claim:' .. tag_of(name) .. ':' .. owner)
        return record and string.sub(record, 1, 1) == 'V' and record or 1
    elseif phase == 'W' then
        return 4
    elseif last and last >= 2 ^ 53 then
        return 3
    end
    local left = shorten and redis.call('PTTL', name) or -1
    if left >= 0 and left <= lease then
        lease = left
    else
        redis.call('PEXPIRE', name, lease)
    end
    if last then
        if last > (tonumber(redis.call('GET', counter)) or 0) then
            redis.call('SET', counter, string.format('%d', last))
        end
        if granted then
            redis.call('SET', name, 'tenure:' .. owner .. string.sub(granted, 2), 'KEEPTTL')
        end
    end
    return -1 - lease
end

--: include renew_each
return shortened()
