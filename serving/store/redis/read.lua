-- Returns events of a response, and where its log stands.
local row = record(asked.id)
local state = state_of(row)
if not row or next(EDGES[state]) == nil then return false end
local frames = {}
if asked.first >= row.oldest then
    local place = asked.first - row.oldest
    frames = redis.call('LRANGE', key('e', asked.id), place, place + asked.limit - 1)
end
return {frames, row.oldest, row.following, state, row.cancelled}
