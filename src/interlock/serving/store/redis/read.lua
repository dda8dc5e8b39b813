-- Returns events of a response, and where its log stands.
local row = record(args.id)
local state = state_of(row)
if not row or next(EDGES[state]) == nil then return false end
local frames = {}
if args.first >= row.oldest then
    local place = args.first - row.oldest
    frames = redis.call('LRANGE', key('e', args.id), place, place + args.limit - 1)
end
return {frames, row.oldest, row.following, state, row.cancelled}
