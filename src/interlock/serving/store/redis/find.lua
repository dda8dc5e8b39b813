-- Returns items by their ids; of two with one id, the one that came last.
local bodies = {}
for place, id in ipairs(args.ids) do
    local digest = redis.call('LINDEX', key('n', id), 0)
    bodies[place] = digest and redis.call('HGET', key('i', digest), 'body') or ''
end
return bodies
