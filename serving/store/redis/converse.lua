-- Does one thing with a conversation. Returns false if there is none, a word if it is refused, and else the conversation.
local name = asked.id
local talk = conversation(name)
if asked.what == 'create' then
    if talk then forget(name) end
    redis.call('HSET', key('c', name), 'created_at', asked.created_at, 'metadata', ARGV[2], 'version', asked.version,
        'owner', '', 'till', 0)
    redis.call('SADD', base .. ':conversations', name)
    grow(name, asked.items, 3)
elseif not talk then
    return false
elseif asked.what == 'update' then
    redis.call('HSET', key('c', name), 'metadata', ARGV[2])
elseif asked.what == 'delete' then
    forget(name)
    return 'deleted'
elseif asked.what == 'items' then
    local bodies = {}
    for place, digest in ipairs(redis.call('LRANGE', key('m', name), 0, -1)) do
        bodies[place] = redis.call('HGET', key('i', digest), 'body')
    end
    return {bodies}
elseif asked.what == 'add' then
    if not is_free(talk) then return 'held' end
    grow(name, asked.items, 3)
    changed(name)
elseif asked.what == 'remove' then
    local found
    for place, digest in ipairs(redis.call('LRANGE', key('m', name), 0, -1)) do
        if not found and redis.call('HGET', key('i', digest), 'id') == asked.item then found = {place - 1, digest} end
    end
    if not found then return false end
    if not is_free(talk) then return 'held' end
    redis.call('LSET', key('m', name), found[1], '')
    redis.call('LREM', key('m', name), 1, '')
    drop(found[2])
    changed(name)
elseif asked.what == 'hold' then
    if not is_free(talk, asked.owner) then return 'held' end
    redis.call('HSET', key('c', name), 'owner', asked.owner, 'till', whole(now + asked.lease))
elseif asked.what == 'release' and talk.owner == asked.owner then
    redis.call('HSET', key('c', name), 'owner', '')
end
talk = conversation(name)
return {talk.created_at, talk.metadata, talk.version}
