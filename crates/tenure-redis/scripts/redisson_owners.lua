-- Finds the holders of a mutex. Included in scripts that meet keys which may be no mutex: the hash of another program has
-- no owners, whatever it contains, and is neither shown nor changed.
--
-- A mutex has a field for each owner, with its hold count: `uuid:number`, in a Java transaction with a name behind it.
-- Hashes with more than 64 fields are not read, because reading them would block the server. A mutex usually expires;
-- Java leaves one without expiry if it asked for a lease that the server does not accept.
local hex = string.rep('%x', 4)
local OWNER = '^' .. hex .. hex .. string.rep('%-' .. hex, 4) .. hex .. hex .. ':%-?%d+'
local function is_owner(field)
    return string.find(field, OWNER .. '$') or string.find(field, OWNER .. ':%x+$')
end
local function owners_of(name)
    local owners = {}
    if redis.call('TYPE', name).ok ~= 'hash' or redis.call('HLEN', name) > 64 then
        return owners
    end
    local fields = redis.call('HGETALL', name)
    for i = 1, #fields, 2 do
        if fields[i] ~= 'tenure:bar' then
            if not (is_owner(fields[i]) and string.find(fields[i + 1], '^%d+$')) then
                return {}
            end
            owners[#owners + 1] = fields[i]
        end
    end
    return owners
end
