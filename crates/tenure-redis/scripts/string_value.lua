-- Reads the value of a lock in the layouts `plain` and `spring`. Included in their scripts.
--
-- There a lock is a string with an expiry, and its value names the holder. Clients compare the whole value with their own,
-- so each kind of client writes what it likes. We write tenure:UUID:NUMBER:FIRST:COUNT:LABEL: the claim, its tokens and its
-- label. After an eviction, COOLDOWN holds the key for no client.
local COOLDOWN = 'tenure:cooldown'
local CLAIM = '%x+%-%x+%-%x+%-%x+%-%x+:%d+'

-- Returns the value of a key; false if the key is absent, nil if it is no string.
local function value_of(name)
    local value = redis.pcall('GET', name)
    if type(value) ~= 'table' then
        return value
    elseif redis.call('TYPE', name).ok == 'string' then
        -- Raises the error, which is not about the type.
        return redis.call('GET', name)
    end
end

-- Returns the owner, the first token, the number of tokens and the label of our claim; nil for any other value.
local function parse(value)
    if value then
        return string.match(value, '^tenure:(' .. CLAIM .. '):(%d+):(%d+):(.*)$')
    end
end

local function tag_of(name)
    return string.find(name, '{', 1, true) and name or '{' .. name .. '}'
end
