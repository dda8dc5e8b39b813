-- The operations of the store, as one script. A call is one commit: nothing else runs in Redis meanwhile.
--
-- In front of this text stand STORED and CONVERSATION, the tables of the same names: for each state and trigger, the next state
-- and the effects.
-- KEYS[1] is the prefix of all keys of a tenant; its hash tag puts them into one slot of a cluster.
-- ARGV[1] is JSON. The other arguments are bytes.
local base = KEYS[1]
local args = cjson.decode(ARGV[1])

local function key(kind, name) return base .. ':' .. kind .. ':' .. name end

local function integer(number) return string.format('%.0f', number) end

-- The time in milliseconds by the clock of Redis, which all processes share; tests pass their own.
local time = redis.call('TIME')
local now = args.now >= 0 and args.now or time[1] * 1000 + math.floor(time[2] / 1000)

local function has_lapsed(till) return not (now < till and till <= now + 2 * args.lease) end

-- Responses

local FIELDS = {'state', 'tip', 'outputs', 'owner', 'epoch', 'till', 'cancelled', 'oldest', 'following', 'written'}
local NUMBERS = {'outputs', 'epoch', 'till', 'cancelled', 'oldest', 'following', 'written'}

-- Returns a response as it is stored; nil if there is none.
local function response(name)
    local values = redis.call('HMGET', key('r', name), unpack(FIELDS))
    if not values[1] then return nil end
    local row = {}
    for index, field in ipairs(FIELDS) do row[field] = values[index] end
    for _, field in ipairs(NUMBERS) do row[field] = tonumber(row[field]) end
    return row
end

-- Returns the state of a response after what time alone has done to it.
local function state_of(row)
    if not row then return 'absent' end
    local state = row.state
    if has_lapsed(row.till) and STORED[state].lapse then state = STORED[state].lapse[1] end
    if args.ttl > 0 and now >= row.written + args.ttl and STORED[state].expire then state = STORED[state].expire[1] end
    return state
end

local function is_final(state) return next(STORED[state]) == nil end

-- Items: each is stored once with a count of its references, and has an index by id.

local function add_item(digest, id, body)
    local name = key('i', digest)
    if redis.call('HINCRBY', name, 'holders', 1) == 1 then
        redis.call('HSET', name, 'id', id, 'body', body)
        redis.call('LPUSH', key('n', id), digest)
        redis.call('INCR', base .. ':items')
    end
end

local function drop_item(digest)
    local name = key('i', digest)
    if redis.call('HINCRBY', name, 'holders', -1) > 0 then return end
    redis.call('LREM', key('n', redis.call('HGET', name, 'id')), 1, digest)
    redis.call('DEL', name)
    redis.call('DECR', base .. ':items')
end

-- Removes a chain back to the first link that something else refers to.
local function drop_chain(link)
    while link ~= '' do
        local name = key('l', link)
        if redis.call('HINCRBY', name, 'holders', -1) > 0 then return end
        local before, item = unpack(redis.call('HMGET', name, 'before', 'item'))
        redis.call('DEL', name)
        drop_item(item)
        link = before
    end
end

local function remove(name, row)
    redis.call('DEL', key('r', name), key('e', name))
    for _, index in ipairs({':leases', ':written', ':logged'}) do redis.call('ZREM', base .. index, name) end
    drop_chain(row.tip)
end

local function notify(name) redis.call('PUBLISH', key('w', name), '') end

-- Removes up to `limit` expired responses, and returns how many.
local function expire(limit)
    if args.ttl == 0 then return 0 end
    local names = redis.call('ZRANGEBYSCORE', base .. ':written', '-inf', integer(now - args.ttl), 'LIMIT', 0, limit)
    for _, name in ipairs(names) do
        remove(name, response(name))
        notify(name)
    end
    return #names
end

-- Conversations that clients have created

local function conversation(name)
    local values = redis.call('HMGET', key('c', name), 'created_at', 'metadata', 'version', 'owner', 'till')
    if not values[1] then return nil end
    local created_at, metadata, version, owner, till = unpack(values)
    return {created_at = created_at, metadata = metadata, version = tonumber(version), owner = owner, till = tonumber(till)}
end

-- Appends items, given as {digest, id}, whose bodies begin at ARGV[start].
local function append_items(name, items, start)
    for index, item in ipairs(items) do
        add_item(item[1], item[2], ARGV[start + index - 1])
        redis.call('RPUSH', key('m', name), item[1])
    end
end

local function remove_conversation(name)
    for _, digest in ipairs(redis.call('LRANGE', key('m', name), 0, -1)) do drop_item(digest) end
    redis.call('DEL', key('m', name), key('c', name))
    redis.call('SREM', base .. ':conversations', name)
end

-- Fires an edge of a conversation as an owner; `writes` carries out the effects on metadata and items. Returns whether there is
-- such an edge.
local function fire(name, row, trigger, owner, writes)
    local state = not row and 'absent' or row.owner == '' and 'free' or 'held'
    if state == 'held' and has_lapsed(row.till) then state = CONVERSATION[state].lapse[1] end
    if trigger == 'release' and owner ~= row.owner then return true end
    if trigger == 'hold' and owner == row.owner and CONVERSATION[state].renew then trigger = 'renew' end
    local edge = CONVERSATION[state][trigger]
    if not edge then return false end
    for _, effect in ipairs(edge[2]) do
        if effect == 'take' then
            redis.call('HSET', key('c', name), 'owner', owner, 'till', integer(now + args.lease))
        elseif effect == 'free' then
            redis.call('HSET', key('c', name), 'owner', '')
        else
            writes[effect]()
            if effect == 'write' then redis.call('HINCRBY', key('c', name), 'version', 1) end
        end
    end
    return true
end

local operations = {}

-- Returns the body of a response, how many of its last items are its output, and its items in reverse order.
function operations.get()
    local row = response(args.id)
    if is_final(state_of(row)) or not row then return false end
    local items = {}
    local link = row.tip
    while link ~= '' do
        local before, item = unpack(redis.call('HMGET', key('l', link), 'before', 'item'))
        items[#items + 1] = redis.call('HGET', key('i', item), 'body')
        link = before
    end
    return {redis.call('HGET', key('r', args.id), 'body'), row.outputs, items}
end

-- Returns events of a response, and the position of its log.
function operations.read()
    local row = response(args.id)
    local state = state_of(row)
    if is_final(state) or not row then return false end
    local frames = {}
    if args.first >= row.oldest then
        local start = args.first - row.oldest
        frames = redis.call('LRANGE', key('e', args.id), start, start + args.limit - 1)
    end
    return {frames, row.oldest, row.following, state, row.cancelled}
end

-- Returns items by their ids; of two with the same id, the later one.
function operations.find()
    local bodies = {}
    for index, id in ipairs(args.ids) do
        local digest = redis.call('LINDEX', key('n', id), 0)
        bodies[index] = digest and redis.call('HGET', key('i', digest), 'body') or ''
    end
    return bodies
end

-- Returns how many links of a chain are stored. A bisection finds it, because a stored link has all links before it in the store.
function operations.count_links()
    local low, high = 0, #args.links
    while low < high do
        local middle = math.floor((low + high + 1) / 2)
        if redis.call('EXISTS', key('l', args.links[middle])) == 1 then low = middle else high = middle - 1 end
    end
    return low
end

-- Returns the responses whose lease has ended, or dates from before the clock was set back far.
function operations.lost()
    local leases = base .. ':leases'
    local names = redis.call('ZRANGEBYSCORE', leases, '-inf', integer(now), 'LIMIT', 0, args.limit)
    local early = redis.call('ZRANGEBYSCORE', leases, '(' .. integer(now + 2 * args.lease), '+inf', 'LIMIT', 0, args.limit)
    for _, name in ipairs(early) do names[#names + 1] = name end
    local lost = {}
    for _, name in ipairs(names) do
        if STORED[state_of(response(name))].adopt and #lost < args.limit then lost[#lost + 1] = name end
    end
    return lost
end

-- Removes some expired responses; returns how many, and the names of some responses whose logs have expired.
function operations.sweep()
    local names = {}
    if args.logs > 0 then
        names = redis.call('ZRANGEBYSCORE', base .. ':logged', '-inf', integer(now - args.logs), 'LIMIT', 0, args.limit)
    end
    return {expire(args.limit), names}
end

-- Returns the state of each response of a tenant, the leases, and the numbers of events, conversations and items.
function operations.info()
    local states, leases, events = {}, {}, 0
    for _, name in ipairs(redis.call('ZRANGE', base .. ':written', 0, -1)) do
        local row = response(name)
        local state = state_of(row)
        if not is_final(state) then
            states[#states + 1] = state
            events = events + redis.call('LLEN', key('e', name))
        end
        if STORED[state].lapse then leases[#leases + 1] = {name, row.owner, row.epoch} end
    end
    return {states, leases, events, redis.call('SCARD', base .. ':conversations'), redis.call('GET', base .. ':items') or '0'}
end

function operations.conversation_items()
    if not conversation(args.id) then return false end
    local bodies = {}
    for index, digest in ipairs(redis.call('LRANGE', key('m', args.id), 0, -1)) do
        bodies[index] = redis.call('HGET', key('i', digest), 'body')
    end
    return bodies
end

-- Returns a conversation after an edge of it was fired, unless `trigger` is empty: false if there is no such conversation or item,
-- 'held' if there is no such edge.
-- ARGV: the metadata, the bodies of the items.
function operations.conversation()
    local name = args.id
    local row = conversation(name)
    if args.trigger == 'create' and row then -- the new conversation replaces the one with its id
        remove_conversation(name)
        row = nil
    end
    if not row and args.trigger ~= 'create' then return false end
    if args.trigger == '' then return {row.created_at, row.metadata, row.version} end

    local place, digest -- of the item to remove
    if args.item ~= '' then
        for index, each in ipairs(redis.call('LRANGE', key('m', name), 0, -1)) do
            if not digest and redis.call('HGET', key('i', each), 'id') == args.item then place, digest = index - 1, each end
        end
        if not digest then return false end
    end

    local legal = fire(name, row, args.trigger, args.owner, {
        keep = function()
            redis.call('HSET', key('c', name), 'created_at', args.created_at, 'metadata', ARGV[2], 'version', args.version,
                'owner', '', 'till', 0)
            redis.call('SADD', base .. ':conversations', name)
            append_items(name, args.items, 3)
        end,
        describe = function() redis.call('HSET', key('c', name), 'metadata', ARGV[2]) end,
        write = function()
            append_items(name, args.items, 3)
            if digest then
                redis.call('LSET', key('m', name), place, '')
                redis.call('LREM', key('m', name), 1, '')
                drop_item(digest)
            end
        end,
        remove = function() remove_conversation(name) end,
    })
    if not legal then return 'held' end
    row = conversation(name) or row
    return {row.created_at, row.metadata, row.version}
end

-- Fires an edge of a response. Every refusal comes before the first write.
-- ARGV: the body, the bodies of the items of `args.links`, those of `args.added`, the events.
function operations.write()
    local name = args.id
    local row = response(name)
    local state = state_of(row)
    if row and is_final(state) then -- expired, but not yet swept
        remove(name, row)
        row, state = nil, 'absent'
    end
    row = row or {tip = '', outputs = 0, owner = '', epoch = 0, till = 0, cancelled = 0, oldest = 0, following = 0, written = 0}
    local edge = STORED[state][args.trigger]
    if not edge or (args.leased and (row.owner ~= args.owner or row.epoch ~= args.epoch)) then
        return {'refused', state, row.epoch, row.owner}
    end
    local effects = {}
    for _, effect in ipairs(edge[2]) do effects[effect] = true end

    local joined = effects.join and args.conversation ~= ''
    if effects.log and args.first ~= row.following then return {'sequence', integer(row.following)} end
    if joined then
        local target = conversation(args.conversation)
        if not target or target.version ~= args.version then return {'changed'} end
    end
    if effects.keep and args.stored_link ~= '' and redis.call('EXISTS', key('l', args.stored_link)) == 0 then return {'retry'} end

    local start = 3 -- of the next arguments
    row.state = edge[1]
    if effects.keep then
        local tip = row.tip
        local link = args.stored_link
        for index, entry in ipairs(args.links) do
            local digest, item, id = unpack(entry)
            if redis.call('EXISTS', key('l', digest)) == 0 then
                add_item(item, id, ARGV[start + index - 1])
                redis.call('HSET', key('l', digest), 'before', link, 'item', item, 'holders', 0)
                if link ~= '' then redis.call('HINCRBY', key('l', link), 'holders', 1) end
            end
            link = digest
        end
        if link ~= '' then redis.call('HINCRBY', key('l', link), 'holders', 1) end
        row.tip, row.outputs, row.written = link, args.outputs, now
        redis.call('HSET', key('r', name), 'body', ARGV[2])
        drop_chain(tip)
    end
    start = start + #args.links
    if joined then
        fire(args.conversation, conversation(args.conversation), 'join', name, {
            write = function() append_items(args.conversation, args.added, start) end,
        })
    end
    start = start + #args.added
    if effects.take then row.owner, row.epoch = args.owner, row.epoch + 1 end
    if effects.take or effects.extend then row.till, row.written = now + args.lease, now end
    if effects.log then
        for index = start, #ARGV do redis.call('RPUSH', key('e', name), ARGV[index]) end
        row.following = row.following + #ARGV - start + 1
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
            'epoch', row.epoch, 'till', integer(row.till), 'cancelled', row.cancelled, 'oldest', integer(row.oldest),
            'following', integer(row.following), 'written', integer(row.written))
        redis.call('ZADD', base .. ':written', integer(row.written), name)
        if STORED[row.state].append then
            -- A response that was written in `lost` stays lost, whatever the clock says.
            redis.call('ZADD', base .. ':leases', STORED[row.state].adopt and '0' or integer(row.till), name)
        else
            redis.call('ZREM', base .. ':leases', name)
        end
        if STORED[row.state].trim and row.oldest < row.following then
            redis.call('ZADD', base .. ':logged', integer(row.written), name)
        else
            redis.call('ZREM', base .. ':logged', name)
        end
    end
    if effects.wake then notify(name) end
    if effects.keep then expire(4) end -- each stored response makes room by removing a few expired ones
    return {'ok', row.epoch, row.cancelled}
end

return operations[args.operation]()
