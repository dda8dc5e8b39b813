-- Returns the responses whose lease is over: those whose lease ends, or was given before the clock was set back by far.
local leases = base .. ':leases'
local found = redis.call('ZRANGEBYSCORE', leases, '-inf', whole(now), 'LIMIT', 0, args.limit)
local strange = redis.call('ZRANGEBYSCORE', leases, '(' .. whole(now + 2 * args.lease), '+inf', 'LIMIT', 0, args.limit)
for _, name in ipairs(strange) do found[#found + 1] = name end
local lost = {}
for _, name in ipairs(found) do
    local state = state_of(record(name))
    if EDGES[state].adopt and #lost < args.limit then lost[#lost + 1] = name end
end
return lost
