-- Fires an edge of the table `stored`, and carries out its effects. What is refused is refused before anything is written.
-- ARGV: the body, the bodies of the items of `args.links`, those of `args.added`, the events.
local name = args.id
local row = record(name)
local state = state_of(row)
if row and next(EDGES[state]) == nil then
    remove(name, row)
    row, state = nil, 'absent'
end
local edge = EDGES[state][args.trigger]
if args.leased and (not edge or row.owner ~= args.owner or row.epoch ~= args.epoch) then return {'lease', state, row and row.epoch or 0} end
if not edge then return {'none', state, row and row.owner or ''} end
local effects = {}
for _, effect in ipairs(edge[2]) do effects[effect] = true end

row = row or {tip = '', outputs = 0, owner = '', epoch = 0, till = 0, cancelled = 0, oldest = 0, following = 0, written = 0}
if effects.log and args.first ~= row.following then return {'gap', whole(row.following)} end
if effects.join and args.conversation ~= '' then
    local talk = conversation(args.conversation)
    if not talk or talk.version ~= args.version then return {'changed'} end
end
if effects.keep and args.known ~= '' and redis.call('EXISTS', key('l', args.known)) == 0 then return {'again'} end

local before = row.tip
local place = 3
row.state = edge[1]
if effects.keep then
    local link = args.known
    for offset, piece in ipairs(args.links) do
        if redis.call('EXISTS', key('l', piece[1])) == 0 then
            take(piece[2], piece[3], ARGV[place + offset - 1])
            redis.call('HSET', key('l', piece[1]), 'before', link, 'item', piece[2], 'holders', 0)
            if link ~= '' then redis.call('HINCRBY', key('l', link), 'holders', 1) end
        end
        link = piece[1]
    end
    if link ~= '' then redis.call('HINCRBY', key('l', link), 'holders', 1) end
    row.tip, row.outputs, row.written = link, args.outputs, now
    redis.call('HSET', key('r', name), 'body', ARGV[2])
    let_go(before)
end
place = place + #args.links
if effects.join and args.conversation ~= '' then
    converse(args.conversation, conversation(args.conversation), 'join', name, function()
        grow(args.conversation, args.added, place)
    end)
end
place = place + #args.added
if effects.take then row.owner, row.epoch = args.owner, row.epoch + 1 end
if effects.take or effects.extend then row.till, row.written = now + args.lease, now end
if effects.log then
    for offset = place, #ARGV do redis.call('RPUSH', key('e', name), ARGV[offset]) end
    row.following = row.following + #ARGV - place + 1
end
if effects.flag then row.cancelled = 1 end
if effects.release then row.owner = '' end
if effects.trim then
    redis.call('DEL', key('e', name))
    row.oldest = row.following
end

if effects.remove then
    remove(name, row)
else
    redis.call('HSET', key('r', name), 'state', row.state, 'tip', row.tip, 'outputs', row.outputs, 'owner', row.owner,
        'epoch', row.epoch, 'till', whole(row.till), 'cancelled', row.cancelled, 'oldest', whole(row.oldest),
        'following', whole(row.following), 'written', whole(row.written))
    redis.call('ZADD', base .. ':written', whole(row.written), name)
    if EDGES[row.state].append then
        -- One that is written about when it is lost stays lost, whatever the clock shows.
        redis.call('ZADD', base .. ':leases', EDGES[row.state].adopt and '0' or whole(row.till), name)
    else
        redis.call('ZREM', base .. ':leases', name)
    end
    if EDGES[row.state].trim and row.oldest < row.following then
        redis.call('ZADD', base .. ':logged', whole(row.written), name)
    else
        redis.call('ZREM', base .. ':logged', name)
    end
end
if effects.wake then wake(name) end
if effects.keep then expire(4) end -- whoever stores a response makes some room for it
return {'ok', row.epoch, row.cancelled}
