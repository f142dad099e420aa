-- Finds the owners of a mutex, i.e. its holders. Included in scripts that may meet the hash of another program: such a hash
-- has no owners, so it is neither listed nor changed.
--
-- A mutex is a hash with a field for each owner: `uuid:number`, in a Java transaction followed by `:` and hex digits. The
-- value is the hold count. Hashes with more than 64 fields are not read, because reading them would block the server. A
-- mutex usually expires; Java leaves one without expiry if it asked for a lease that the server does not accept.
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
