-- Returns the body of a response, how many of its last items are its output, and the items of its conversation from the last on.
local row = record(args.id)
if not row or next(EDGES[state_of(row)]) == nil then return false end
local items = {}
local link = row.tip
while link ~= '' do
    local found = redis.call('HMGET', key('l', link), 'before', 'item')
    items[#items + 1] = redis.call('HGET', key('i', found[2]), 'body')
    link = found[1]
end
return {redis.call('HGET', key('r', args.id), 'body'), row.outputs, items}
