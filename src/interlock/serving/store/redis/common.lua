-- What all scripts begin with. A script is one commit: nothing else runs in Redis meanwhile.
--
-- KEYS[1] is what the names of all keys of a tenant begin with; it holds a hash tag, so that they are in one slot of a cluster.
-- ARGV[1] is JSON; bytes follow as arguments of their own.
local base = KEYS[1]
local args = cjson.decode(ARGV[1])

local function key(kind, name) return base .. ':' .. kind .. ':' .. name end

local function whole(number) return string.format('%.0f', number) end

-- The time in milliseconds: that of Redis, so that all processes have one clock; or the one that is told, for tests.
local time = redis.call('TIME')
local now = args.now >= 0 and args.now or time[1] * 1000 + math.floor(time[2] / 1000)

local function lapsed(till) return not (now < till and till <= now + 2 * args.lease) end

-- The response as it is stored; nil if there is none. EDGES is the table `stored`.
local FIELDS = {'state', 'tip', 'outputs', 'owner', 'epoch', 'till', 'cancelled', 'oldest', 'following', 'written'}

local function record(name)
    local found = redis.call('HMGET', key('r', name), unpack(FIELDS))
    if not found[1] then return nil end
    local row = {}
    for place, field in ipairs(FIELDS) do row[field] = found[place] end
    for _, field in ipairs({'outputs', 'epoch', 'till', 'cancelled', 'oldest', 'following', 'written'}) do
        row[field] = tonumber(row[field])
    end
    return row
end

-- The state in which a response is now: what time alone does to it is fired first.
local function state_of(row)
    if not row then return 'absent' end
    local state = row.state
    if lapsed(row.till) and EDGES[state].lapse then state = EDGES[state].lapse[1] end
    if args.ttl > 0 and now >= row.written + args.ttl and EDGES[state].expire then state = EDGES[state].expire[1] end
    return state
end

-- Items: each is stored once, with how often it is referred to, and is found by its id.
local function take(digest, id, body)
    local name = key('i', digest)
    if redis.call('HINCRBY', name, 'holders', 1) == 1 then
        redis.call('HSET', name, 'id', id, 'body', body)
        redis.call('LPUSH', key('n', id), digest)
        redis.call('INCR', base .. ':items')
    end
end

local function drop(digest)
    local name = key('i', digest)
    if redis.call('HINCRBY', name, 'holders', -1) > 0 then return end
    redis.call('LREM', key('n', redis.call('HGET', name, 'id')), 1, digest)
    redis.call('DEL', name)
    redis.call('DECR', base .. ':items')
end

-- Conversations of responses: chains of links, which share what they have in common.
local function let_go(link)
    while link ~= '' do
        local name = key('l', link)
        if redis.call('HINCRBY', name, 'holders', -1) > 0 then return end
        local found = redis.call('HMGET', name, 'before', 'item')
        redis.call('DEL', name)
        drop(found[2])
        link = found[1]
    end
end

local function remove(name, row)
    redis.call('DEL', key('r', name), key('e', name))
    for _, index in ipairs({':leases', ':written', ':logged'}) do redis.call('ZREM', base .. index, name) end
    let_go(row.tip)
end

local function wake(name) redis.call('PUBLISH', key('w', name), '') end

-- Removes up to so many responses that are stored no longer, and returns how many it did.
local function expire(limit)
    if args.ttl == 0 then return 0 end
    local due = redis.call('ZRANGEBYSCORE', base .. ':written', '-inf', whole(now - args.ttl), 'LIMIT', 0, limit)
    for _, name in ipairs(due) do
        remove(name, record(name))
        wake(name)
    end
    return #due
end
