-- Finds the holders of a lock. Included in scripts that may meet the hash of another program: such a hash has no holders, so
-- it is neither listed nor changed. The including scripts define `name` and `tag`.
--
-- A mutex is a hash with a field for each owner: `uuid:number`, in a Redisson transaction followed by `:` and hex digits. The
-- value is the hold count. A read-write lock also has the field `mode`; see redisson_read_write. A hash with too
-- many fields to be a lock (64 for a mutex, 4096 for a read-write lock) is not read, because that would block the server.
-- A lock usually expires; Redisson leaves one without expiry if it asked for a lease that the server does not accept.

-- Returns fields of the hash; none if the key has another type. Raises other errors, which say nothing about the lock.
local function fields_of(...)
    local found = redis.pcall('HMGET', name, ...)
    if found.err and not string.find(found.err, 'WRONGTYPE', 1, true) then
        error(found)
    end
    return found
end

-- Returns the rest (ms) of the holder's lease; if there are several, of the one that ends last.
local function last_left()
    return redis.call('PTTL', name)
end

local function hold_key(owner, number)
    return tag .. ':' .. owner .. ':rwlock_timeout:' .. number
end

-- Returns the rest of the longest lease of a reader's holds (ms); -2 if all have ended.
local function read_left(owner, count)
    local left = -2
    for number = 1, math.min(tonumber(count) or 0, 1000) do
        left = math.max(left, redis.call('PTTL', hold_key(owner, number)))
    end
    return left
end

-- Returns the owners, and for each one its mode ('' in a mutex, 'R' a reader, 'W' a writer) and the rest of its lease (ms).
-- A writer's own reads are not listed.
local function owners_of()
    local function is_owner(field)
        local hex = string.rep('%x', 4)
        local owner = '^' .. hex .. hex .. string.rep('%-' .. hex, 4) .. hex .. hex .. ':%-?%d+'
        return string.find(field, owner .. '$') or string.find(field, owner .. ':%x+$')
    end
    local owners, modes, left = {}, {}, {}
    if redis.call('TYPE', name).ok ~= 'hash' then
        return owners
    end
    local state, ends = redis.call('HGET', name, 'mode'), redis.call('PTTL', name)
    if redis.call('HLEN', name) > (state and 4096 or 64) or state and state ~= 'read' and state ~= 'write' then
        return owners
    end
    local fields = redis.call('HGETALL', name)
    for i = 1, #fields, 2 do
        local owner, is_writer = fields[i], 0
        if state then
            owner, is_writer = string.gsub(owner, ':write$', '')
        end
        if owner ~= 'tenure:cooldown' and fields[i] ~= 'mode' then
            if not (is_owner(owner) and string.find(fields[i + 1], '^%d+$')) then
                return {}
            end
            local own_left = state == 'read' and read_left(owner, fields[i + 1]) or ends
            if state ~= 'write' and own_left >= -1 or is_writer == 1 then
                owners[#owners + 1] = owner
                modes[owner], left[owner] = not state and '' or is_writer == 1 and 'W' or 'R', own_left
            end
        end
    end
    return owners, modes, left
end
