-- A release, for all but the common cases. Included in the release scripts, after redisson_place. They define `owner`,
-- `ending`, `plain`, `own`, `client`, `cooldown`, the successor's arguments, and `held`: whether the owner held until now.

-- An eviction, or the release of a claim whose kind the client does not know, first checks the key: it may be a lock of
-- another kind, or hold another program's data.
local evicted, holders, left = string.sub(ending, 1, 1) == 'V', {}, 0
if evicted or ending == 'U' then
    local kind = kind_of_key()
    if kind and math.min(kind, 1) ~= math.min(own_kind, 1) then
        return '-1 ' .. kind
    end
    if evicted then
        holders, left = owners_of(), math.max(last_left(), 0)
        for _, one in ipairs(holders) do
            holders[one] = true
        end
    else
        ending = 'E'
    end
    held = owner ~= '' and (not evicted or holders[owner]) and holds(owner) and drop(owner)
end

-- Deletes the record of a released claim. But if a request of the claim may be in flight, or the claim was evicted, writes
-- a record of its end instead, for that request or for the evicted holder's next renewal. The renewal comes at the
-- latest when the lease would have ended, in `left` ms.
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
        -- The owner is a Redisson thread, which does not read our records.
        return
    end
    local in_flight, ttl = 'tenure_in_flight:' .. string.sub(one, 1, 36) .. SCOPE, RECORD_TTL + left
    if evicted then
        ttl = math.max(ttl, redis.call('PTTL', records .. one))
    end
    redis.call('SET', records .. one, ending, 'PX', ttl)
    redis.call('SET', in_flight, '1', 'PX', math.max(RECORD_TTL, redis.call('PTTL', in_flight)))
    if evicted then
        report_eviction(one)
    end
end

local before = call('LINDEX', queue, 0)
sweep()
local freed = held and 1 or 0
if owner == '' then
    freed = {}
    for _, one in ipairs(holders) do
        held = true
        freed[#freed + 1] = { one, is_ours(one) and 1 or 0 }
        drop(one)
        end_claim(one, left)
    end
elseif held then
    end_claim(owner, left)
elseif call('ZSCORE', timeouts, owner) then
    freed = 1
    remove_from_queue(owner)
    set_queue_expiry()
    end_claim(owner, left)
    if evicted then
        -- Wakes the evicted waiter, so that it learns of its eviction.
        wake_head(owner)
    end
elseif string.sub(call('GET', records .. owner) or '', 1, 1) ~= 'V' then
    -- The owner neither holds nor waits. If a request that places it may still arrive, `end_claim` records its end.
    if evicted then
        ending, evicted = 'E', false
    end
    end_claim(owner, left)
end
if held and before then
    set_queue_expiry()
end
if held and tonumber(cooldown or 0) > 0 then
    -- During the cooldown the field `tenure:cooldown`, which belongs to no client, holds the key. Redisson respects it like
    -- any holder.
    hold('tenure:cooldown', cooldown)
end
local opened = held and (settle() or evicted)

-- Counts no waiter behind the first hundred, because the caller only has to know whether there are many.
local others = 0
for _, one in ipairs(call('LRANGE', queue, 0, 99)) do
    if string.sub(one, 1, 36) ~= client then
        others = others + 1
    end
end
others = others + math.max(call('PUBSUB', 'NUMSUB', channel)[2] - own, 0)

local reply = owner == '' and { freed, others } or freed .. ' ' .. others
if successor then
    mode = successor_mode or mode
    write_client_record(client_record, client_ttl, client_label)
    local code, first, second =
        place(successor, tonumber(lease), tonumber(not_after), tonumber(grants), label or '', fair == '1', others > 0)
    reply = reply .. string.format(' %d %d %d %d', code, first, second, now)
    if code == 1 and not is_open() then
        return reply
    end
end
local head = call('LINDEX', queue, 0)
if opened or head ~= before then
    wake_waiters(head)
end
return reply
