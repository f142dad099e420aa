-- Calls `renew` for each claim of a call. Included in the scripts that renew: they define `renew` and `reply` before, and
-- return `shortened()`.
--
-- ARGV  the label of the claims' client and its UUID, then groups of claims that are renewed alike. A group begins with
--       the number of its claims, the lease (ms), the phase ('W' waiting, 'G' granted, 'D' granted, and a writer becomes a
--       reader, 'E' either), '1' if the lease may only be shortened or '', '1' if the token counter is raised to the last
--       token or '', the number of tokens of each claim, '1' if a record of its tokens is written or '', and the label
--       for the record. Then, for each claim: its number, and its first token or ''.
--
-- The `renew` of a script gets the name of the lock, the owner, the lease, the phase, whether the lease may only be
-- shortened, the token to which the counter is raised or false, and the record or false. The failure of one claim does not
-- affect the others.
local at, left, lease, phase, shorten, raises, count, records_tokens, label = 3, 0
for i = 3, #KEYS do
    if left == 0 then
        left, lease, phase, shorten, raises, count, records_tokens, label = unpack(ARGV, at, at + 7)
        left, lease, at = tonumber(left), tonumber(lease), at + 8
    end
    local owner, first = ARGV[2] .. ':' .. ARGV[at], ARGV[at + 1]
    left, at = left - 1, at + 2
    -- Subtracts first: in doubles, 2^53 + 1 - 1 is 2^53 - 1.
    local last = raises == '1' and first + (count - 1)
    local granted = records_tokens == '1' and 'G:' .. first .. ':' .. count .. ':' .. label
    local ok, code = pcall(renew, KEYS[i], owner, lease, phase, shorten == '1', last, granted)
    reply[i - 1] = ok and code or 'R' .. (type(code) == 'table' and code.err or tostring(code))
end

-- Nearly always, all claims have the same result: then the reply has it once.
local function shortened()
    for i = 3, #reply do
        if reply[i] ~= reply[2] then
            return reply
        end
    end
    return { reply[1], reply[2] }
end
