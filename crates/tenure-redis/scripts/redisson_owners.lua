-- Who holds a mutex: part of scripts that look at what may be none. Another program's hash is nobody's lock, whatever
-- stands in it: neither shown, nor touched.
--
-- A mutex has a field for each owner, with how often it holds: `uuid:number`, and in a transaction of Java's its name
-- behind it. Large hashes are not read, for nobody is served meanwhile. It has a time to live as a rule: Java leaves one
-- without where it asked for a lease that the server does not take.
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
