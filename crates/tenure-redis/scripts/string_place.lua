-- Functions that string_acquire and string_release share. Included in both, which define `name`, `counter` and `now` (µs).
--
-- Only an ended claim has a record, and only if its end must be remembered: E if a request of the claim may be in
-- flight; V[BY] if it was evicted, and its holder must learn of that. A V record outlives the lease by 12 s.
local tag = tag_of(name)
local record_of = 'tenure_claim:' .. tag .. ':'
local RECORD_TTL = 12000
-- The time (ms) after which a waiter polls while a client of another kind holds the key, because its release publishes
-- nothing. Such clients poll as often themselves.
local FOREIGN_POLL = 100
-- The time (ms) after which a successor polls again if it was not granted because others wait. script.rs inserts it.
local TURN = TURN_MS
--: include redisson_draw

-- Returns the reply for a claim while the key is no string: waiting if it is a mutex of the layout `redisson`.
local function place_on_other_type()
    --: include redisson_owners
    local is_hash = redis.call('TYPE', name).ok == 'hash'
    if is_hash and redis.call('HEXISTS', name, 'mode') == 1 then
        return 4, -1, 0
    elseif is_hash and (#owners_of() > 0 or redis.call('HEXISTS', name, COOLDOWN) == 1) then
        return 0, FOREIGN_POLL, -1
    end
    return 6, 0, 0
end

-- Places or polls one claim. `yields` is true for a successor if other clients wait: then it is not granted. Returns the
-- three numbers that `string_acquire` replies before the time.
local function place(owner, lease, not_after, grants, label, yields)
    local value = value_of(name)
    local holder, first, count = parse(value)
    if holder == owner then
        redis.call('PEXPIRE', name, lease)
        return 1, tonumber(first), tonumber(count)
    elseif redis.call('EXISTS', record_of .. owner) == 1 then
        return 2, 0, 0
    elseif now > not_after then
        return 3, 0, 0
    elseif value then
        local left = redis.call('PTTL', name)
        if left >= 0 and (holder or value == COOLDOWN or left < FOREIGN_POLL) then
            -- The claim polls within its own lease, because a client of another kind may delete the key.
            return 0, math.min(left + 1, lease), -1
        end
        return 0, FOREIGN_POLL, -1
    elseif value == nil then
        return place_on_other_type()
    elseif yields then
        return 0, TURN, -1
    end
    first = draw(grants)
    if not first then
        return 5, 0, 0
    end
    redis.call('SET', name, string.format('tenure:%s:%d:%d:', owner, first, grants) .. label, 'PX', lease)
    return 1, first, grants
end
