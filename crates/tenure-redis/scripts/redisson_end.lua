-- Ends claims. Included in scripts that release, which define `ending`, `plain` (true without eviction, if no request of
-- the claim can be in flight), `evicted`, `client` and the functions of redisson_records.

-- Deletes the record of a released claim. But if a request of the claim may be in flight, or the claim was evicted, writes
-- a record of its end instead, for that request or for the evicted holder's next renewal. The latter comes at the latest
-- when the lease would have ended, in `left` ms.
local function end_claim(one, left)
    if plain then
        -- Deletes the record of a waiting (W) or granted (G) claim. The record of an ended claim stays.
        local kind = string.sub(redis.call('GET', records .. one) or '', 1, 1)
        if kind == 'W' or kind == 'G' then
            redis.call('DEL', records .. one)
        end
        return
    end
    if evicted and client == '' and not is_ours(one) then
        -- The owner is a Java thread, which does not read our records.
        return
    end
    local doubts, ttl = 'tenure_doubts:' .. string.sub(one, 1, 36) .. SCOPE, RECORD_TTL + left
    if evicted then
        ttl = math.max(ttl, redis.call('PTTL', records .. one))
    end
    redis.call('SET', records .. one, ending, 'PX', ttl)
    redis.call('SET', doubts, '1', 'PX', math.max(RECORD_TTL, redis.call('PTTL', doubts)))
end
