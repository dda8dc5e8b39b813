-- Returns what there is of a tenant: states and how many responses are in each, leases, and other numbers.
local states, leases, events = {}, {}, 0
for _, name in ipairs(redis.call('ZRANGE', base .. ':written', 0, -1)) do
    local row = record(name)
    local state = state_of(row)
    if next(EDGES[state]) ~= nil then
        states[#states + 1] = state
        events = events + redis.call('LLEN', key('e', name))
    end
    if state == 'queued' or state == 'running' then leases[#leases + 1] = {name, row.owner, row.epoch} end
end
return {states, leases, events, redis.call('SCARD', base .. ':conversations'), redis.call('GET', base .. ':items') or '0'}
