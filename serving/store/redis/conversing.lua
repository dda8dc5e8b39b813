-- What is done with the conversations that clients create. Items come as {digest, id}, their bodies from ARGV[place] on.
local function conversation(name)
    local found = redis.call('HMGET', key('c', name), 'created_at', 'metadata', 'version', 'owner', 'till')
    if not found[1] then return nil end
    return {created_at = found[1], metadata = found[2], version = tonumber(found[3]), owner = found[4], till = tonumber(found[5])}
end

local function grow(name, items, place)
    for offset, item in ipairs(items) do
        take(item[1], item[2], ARGV[place + offset - 1])
        redis.call('RPUSH', key('m', name), item[1])
    end
end

local function changed(name, owner)
    redis.call('HINCRBY', key('c', name), 'version', 1)
    if owner then redis.call('HSET', key('c', name), 'owner', owner) end
end

local function is_free(talk, owner) return talk.owner == '' or talk.owner == owner or lapsed(talk.till) end

local function forget(name)
    for _, digest in ipairs(redis.call('LRANGE', key('m', name), 0, -1)) do drop(digest) end
    redis.call('DEL', key('m', name), key('c', name))
    redis.call('SREM', base .. ':conversations', name)
end
