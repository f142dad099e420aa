-- Who holds a mutex: part of scripts that look at what may be none. Another program's hash is nobody's lock, whatever
-- stands in it: neither shown, nor touched.
--
-- A mutex has a time to live, and a field for each owner, `uuid:number`, with how often it holds. Large hashes are not read,
-- for nobody is served meanwhile.
local hex = string.rep('%x', 4)
local OWNER = '^' .. hex .. hex .. string.rep('%-' .. hex, 4) .. hex .. hex .. ':%-?%d+$'
local function owners_of(name)
    local owners = {}
    if redis.call('TYPE', name).ok ~= 'hash' or redis.call('PTTL', name) < 0 or redis.call('HLEN', name) > 64 then
        return owners
    end
    local fields = redis.call('HGETALL', name)
    for i = 1, #fields, 2 do
        if fields[i] ~= 'tenure:bar' then
            if not (string.find(fields[i], OWNER) and string.find(fields[i + 1], '^%d+$')) then
                return {}
            end
            owners[#owners + 1] = fields[i]
        end
    end
    return owners
end
