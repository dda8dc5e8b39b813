-- Does one thing with a conversation: reads it, or fires an edge of the table `conversation`. Returns false if there is none or it
-- has no such item, 'held' if the table has no such edge, and else the conversation.
local name = args.id
local talk = conversation(name)
if not talk and args.what ~= 'create' then return false end

if args.what == 'items' then
    local bodies = {}
    for place, digest in ipairs(redis.call('LRANGE', key('m', name), 0, -1)) do
        bodies[place] = redis.call('HGET', key('i', digest), 'body')
    end
    return {bodies}
end

local found -- the item that is to be removed: its place, and its digest
if args.item then
    for place, digest in ipairs(redis.call('LRANGE', key('m', name), 0, -1)) do
        if not found and redis.call('HGET', key('i', digest), 'id') == args.item then found = {place - 1, digest} end
    end
    if not found then return false end
end

local changes = {
    create = function()
        redis.call('HSET', key('c', name), 'created_at', args.created_at, 'metadata', ARGV[2], 'version', args.version,
            'owner', '', 'till', 0)
        redis.call('SADD', base .. ':conversations', name)
        grow(name, args.items, 3)
    end,
    describe = function() redis.call('HSET', key('c', name), 'metadata', ARGV[2]) end,
    change = function()
        if found then
            redis.call('LSET', key('m', name), found[1], '')
            redis.call('LREM', key('m', name), 1, '')
            drop(found[2])
        else
            grow(name, args.items, 2)
        end
    end,
    delete = function() forget(name) end,
}
if args.what == 'create' and talk then -- the new one takes the place of one with its id
    converse(name, talk, 'delete', '', changes.delete)
    talk = nil
end
if args.what ~= 'look' and not converse(name, talk, args.what, args.owner, changes[args.what]) then return 'held' end
if args.what == 'delete' then return 'deleted' end
talk = conversation(name)
return {talk.created_at, talk.metadata, talk.version}
