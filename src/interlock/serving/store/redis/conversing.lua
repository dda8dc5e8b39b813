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

local function forget(name)
    for _, digest in ipairs(redis.call('LRANGE', key('m', name), 0, -1)) do drop(digest) end
    redis.call('DEL', key('m', name), key('c', name))
    redis.call('SREM', base .. ':conversations', name)
end

-- Fires an edge of a conversation by somebody, and carries out its effects; `change` changes what is neither the hold nor the
-- version. Returns whether the table has such an edge. TALKS is the table `conversation`.
local function converse(name, talk, trigger, by, change)
    local state = not talk and 'absent' or talk.owner == '' and 'free' or 'held'
    if state == 'held' and lapsed(talk.till) then state = TALKS[state].lapse[1] end
    if trigger == 'release' and by ~= talk.owner then return true end -- the hold is another's, and stays
    if trigger == 'hold' and by == talk.owner and TALKS[state].renew then trigger = 'renew' end
    local edge = TALKS[state][trigger]
    if not edge then return false end
    for _, effect in ipairs(edge[2]) do
        if effect == 'take' then
            redis.call('HSET', key('c', name), 'owner', by, 'till', whole(now + args.lease))
        elseif effect == 'free' then
            redis.call('HSET', key('c', name), 'owner', '')
        else
            change()
            if effect == 'write' then redis.call('HINCRBY', key('c', name), 'version', 1) end
        end
    end
    return true
end
