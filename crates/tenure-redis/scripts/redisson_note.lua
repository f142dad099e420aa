-- Writes down what claims on mutexes were granted, for whoever looks at them: of those that still hold.
--
-- Inputs     KEYS  what is known of the claims' client, then the lock's name of each claim
--            ARGV  for how long (ms) to keep what is known of the client, its label; for each claim: owner, and
--                  FIRST:COUNT:LABEL
-- Atomicity  one script for all; one claim's trouble is no other's.
-- Answer     1
-- Closes     only of a field that is there something is written: what is released meanwhile leaves nothing.
local claims = KEYS[1]
redis.call('HSET', claims, 'label', ARGV[2])
redis.call('PEXPIRE', claims, math.max(ARGV[1], redis.call('PTTL', claims)))
for i = 2, #KEYS do
    local at = 2 * i - 1
    if redis.pcall('HEXISTS', KEYS[i], ARGV[at]) == 1 then
        redis.call('HSET', claims, ARGV[at], ARGV[at + 1])
    end
end
return 1
