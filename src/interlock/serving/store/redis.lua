-- The operations of the store, as one script. A call is one commit: nothing else runs in Redis meanwhile.
--
-- `redis.py` puts PREFIX, VERSION, and the tables STORED and CONVERSATION in front of this text. A table has, for each state and
-- trigger, the next state, the effects, and whether only the owner fires it.
-- KEYS[1] is the beginning of all keys of a tenant. The layout and the list of tenants have keys of their own.
-- ARGV[1] is a map in MessagePack. These records are arrays in MessagePack, each in a string:
--   r:ID  a response; its body without output is b:ID, its events are the list e:ID
--   s:LINK  a segment: the links that one write has added to a chain, by the last of them. It has the last link of the segment
--           before, the number of references to the segment, and the digests and ids of its items
--   i:ID  the items with an id: the digest of each, the number of references to it, its body
-- The hash c:ID is a conversation, and the list m:ID its members, each the digest and the id of an item in one string.
-- The sorted sets `leases`, `written`, `logged` and `hidden` are indexes of the responses, the set `conversations` has the ids of all
-- conversations, `count` is the number of items, and w:ID is the channel for notifications of a response.
local base = KEYS[1]
local args = cmsgpack.unpack(ARGV[1])

local function key(kind, name) return base .. ':' .. kind .. ':' .. name end

local function integer(number) return string.format('%.0f', number) end

-- Removes a key that another program has written, because the calls that use the key would fail.
local function discard(name, reason)
    redis.log(redis.LOG_WARNING, 'Interlock removes the key ' .. name .. ', which ' .. reason .. '.')
    redis.call('DEL', name)
end

local function require_type(name, expected)
    local actual = redis.call('TYPE', name).ok
    if actual ~= expected and actual ~= 'none' then discard(name, 'is a ' .. actual .. ' instead of a ' .. expected) end
end

-- Returns a record; nil if there is none.
local function load(name)
    local packed = redis.pcall('GET', name)
    if not packed then return nil end
    local valid, record = pcall(cmsgpack.unpack, packed)
    if valid and type(record) == 'table' then return record end
    discard(name, 'is no record')
    return nil
end

local function save(name, record) redis.call('SET', name, cmsgpack.pack(record)) end

local LAYOUT, TENANTS, ITEMS = PREFIX .. ':layout', PREFIX .. ':tenants', base .. ':count'
local INDEXES = {':leases', ':written', ':logged', ':hidden'}
require_type(LAYOUT, 'string')
require_type(TENANTS, 'set')
require_type(ITEMS, 'string')
require_type(base .. ':conversations', 'set')
for _, suffix in ipairs(INDEXES) do require_type(base .. suffix, 'zset') end

local layout = redis.call('GET', LAYOUT)
local FOR_MIGRATION = {layout = true, tenants = true, migrate = true}
if layout and layout ~= VERSION and not FOR_MIGRATION[args.operation] then
    return redis.error_reply('LAYOUT ' .. (tonumber(layout) or 0) .. ' ' .. VERSION)
end

-- Writes the layout and the name of the tenant. Both are missing at first, and after `FLUSHALL` or an eviction.
local function register()
    if not layout then redis.call('SET', LAYOUT, VERSION) end
    redis.call('SADD', TENANTS, args.tenant)
end

-- Lets the rest of the call write although the memory is full: Redis refuses only the first write of a script, and no DEL.
local function write_without_memory() redis.call('DEL', base .. ':none') end

-- The time in milliseconds by the clock of Redis, which all processes share; tests pass their own.
local time = redis.call('TIME')
local now = args.now >= 0 and args.now or time[1] * 1000 + math.floor(time[2] / 1000)

-- Returns the edge for a trigger in a state; nil if there is none, or only for the owner.
local function edge_of(edges, trigger, is_owner)
    local edge = edges[trigger]
    if edge and edge[3] and not is_owner then return nil end
    return edge
end

local function has_lapsed(till) return not (now < till and till <= now + 2 * args.lease) end

-- Responses

local FIELDS = {'state', 'tip', 'outputs', 'owner', 'epoch', 'till', 'cancelled', 'oldest', 'following', 'written'}

local function save_response(name, row)
    local values = {}
    for index, field in ipairs(FIELDS) do values[index] = row[field] end
    save(key('r', name), values)
end

-- Returns a response as it is stored; nil if there is none. If events are missing, as after an eviction, all of them have expired.
local function response(name)
    require_type(key('e', name), 'list')
    local values = load(key('r', name))
    if not values then return nil end
    if #values ~= #FIELDS or not STORED[values[1]] then
        discard(key('r', name), 'is no response')
        return nil
    end
    local row = {}
    for index, field in ipairs(FIELDS) do row[field] = values[index] end
    if redis.call('LLEN', key('e', name)) ~= row.following - row.oldest then
        discard(key('e', name), 'lacks events of its response')
        row.oldest = row.following
        pcall(save_response, name, row) -- fails if there is no memory
    end
    return row
end

-- Returns the current state of a response, whose lease may have lapsed, or which may have expired.
local function state_of(row)
    if not row then return 'absent' end
    local state = row.state
    if has_lapsed(row.till) and STORED[state].lapse then state = STORED[state].lapse[1] end
    if args.ttl >= 0 and now >= row.written + args.ttl and STORED[state].expire then state = STORED[state].expire[1] end
    return state
end

local function is_final(state) return next(STORED[state]) == nil end

-- Writes a response into an index with a score, or removes it if there is no score.
local function set_index(suffix, name, score)
    if score then redis.call('ZADD', base .. suffix, integer(score), name) else redis.call('ZREM', base .. suffix, name) end
end

-- Returns the members of an index of leases, up to `limit`, whose lease has ended, or dates from before the clock was set back far.
local function lapsed(suffix, limit)
    local names = redis.call('ZRANGEBYSCORE', base .. suffix, '-inf', integer(now), 'LIMIT', 0, limit)
    local early = redis.call('ZRANGEBYSCORE', base .. suffix, '(' .. integer(now + 2 * args.lease), '+inf', 'LIMIT', 0, limit)
    for _, name in ipairs(early) do names[#names + 1] = name end
    return names
end

-- Writes an unfinished response into the index of leases, or removes one that has ended. One that was written in `lost` stays
-- lost, whatever the clock says.
local function index_lease(name, row)
    local edges = STORED[row.state]
    set_index(':leases', name, edges.append and (edges.adopt and 0 or row.till))
end

-- Items: each is stored once, with the number of its references.

-- Returns the index at which the item with a digest begins in a record of items; nil if it is not there.
local function place_of(items, digest)
    for place = 1, #items, 3 do
        if items[place] == digest then return place end
    end
    return nil
end

-- Changes the number of references to an item, which is stored with the first reference and removed with the last.
local function refer(change, digest, id, body)
    local items = load(key('i', id)) or {}
    local place = place_of(items, digest)
    if not place then
        if change < 0 then return end
        place = #items + 1
        items[place], items[place + 1], items[place + 2] = digest, 0, body
        redis.call('INCR', ITEMS)
    end
    items[place + 1] = items[place + 1] + change
    if items[place + 1] == 0 then
        for _ = 1, 3 do table.remove(items, place) end
        redis.call('DECR', ITEMS)
    end
    if #items == 0 then redis.call('DEL', key('i', id)) else save(key('i', id), items) end
end

-- Returns the body of an item; nil if Redis has evicted it.
local function body_of(digest, id)
    local items = load(key('i', id)) or {}
    local place = place_of(items, digest)
    return place and items[place + 2]
end

-- Removes a chain back to the first segment that something else refers to.
local function drop_chain(link)
    while link ~= '' do
        local segment = load(key('s', link))
        if not segment then return end
        segment[2] = segment[2] - 1
        if segment[2] > 0 then return save(key('s', link), segment) end
        redis.call('DEL', key('s', link))
        for place = 1, #segment[3], 2 do refer(-1, segment[3][place], segment[3][place + 1]) end
        link = segment[1]
    end
end

-- Returns how many of the first items of a chain are stored: those up to the last link that ends a segment. A chain is a list of
-- {link, digest, id, body} of its items.
local function count_stored(chain)
    for place = #chain, 1, -1 do
        if load(key('s', chain[place][1])) then return place end
    end
    return 0
end

-- Adds a reference to a chain, whose first `stored` items need no more than their links. Returns its last link.
local function add_chain(chain, stored)
    local last = ''
    if stored > 0 then
        last = chain[stored][1]
        local segment = load(key('s', last))
        segment[2] = segment[2] + 1
        save(key('s', last), segment)
    end
    if stored == #chain then return last end
    local members = {}
    for place = stored + 1, #chain do
        local _, digest, id, body = unpack(chain[place])
        refer(1, digest, id, body)
        members[#members + 1] = digest
        members[#members + 1] = id
    end
    save(key('s', chain[#chain][1]), {last, 1, members})
    return chain[#chain][1]
end

local function remove(name, row)
    redis.call('DEL', key('r', name), key('b', name), key('e', name))
    for _, suffix in ipairs(INDEXES) do set_index(suffix, name) end
    if row then drop_chain(row.tip) end
end

local function notify(name) redis.call('PUBLISH', key('w', name), '') end

-- Removes up to `limit` expired responses, and those that were hidden until now; returns how many. One with a valid lease does not
-- expire.
local function expire(limit)
    local names = lapsed(':hidden', limit)
    if args.ttl >= 0 then
        local old = redis.call('ZRANGEBYSCORE', base .. ':written', '-inf', integer(now - args.ttl), 'LIMIT', 0, limit)
        for _, name in ipairs(old) do names[#names + 1] = name end
    end
    local removed = 0
    for _, name in ipairs(names) do
        local row = response(name)
        if not row or is_final(state_of(row)) then
            remove(name, row)
            notify(name)
            removed = removed + 1
        end
    end
    return removed
end

-- Conversations that clients have created

local function conversation(name)
    require_type(key('c', name), 'hash')
    require_type(key('m', name), 'list')
    local values = redis.call('HMGET', key('c', name), 'created_at', 'metadata', 'version', 'owner', 'till')
    if not values[1] then return nil end
    local created_at, metadata, version, owner, till = unpack(values)
    return {created_at = created_at, metadata = metadata, version = tonumber(version), owner = owner, till = tonumber(till)}
end

-- Returns digest and id of a member of a conversation.
local function split(member) return member:sub(1, 16), member:sub(17) end

-- Appends items, given as a chain.
local function append_items(name, items)
    for _, item in ipairs(items) do
        local _, digest, id, body = unpack(item)
        refer(1, digest, id, body)
        redis.call('RPUSH', key('m', name), digest .. id)
    end
end

local function remove_conversation(name)
    for _, member in ipairs(redis.call('LRANGE', key('m', name), 0, -1)) do refer(-1, split(member)) end
    redis.call('DEL', key('m', name), key('c', name))
    redis.call('SREM', base .. ':conversations', name)
end

-- Returns the edge of a conversation for a trigger of the response `owner`; nil if there is none.
local function conversation_edge(row, trigger, owner)
    local state = not row and 'absent' or row.owner == '' and 'free' or 'leased'
    if state == 'leased' and has_lapsed(row.till) then state = CONVERSATION[state].lapse[1] end
    return edge_of(CONVERSATION[state], trigger, row and row.owner == owner)
end

-- Carries out the effects of an edge of a conversation with the data of an edit.
local function carry_out(name, edge, edit)
    if edge[1] == 'deleted' or edit.member then write_without_memory() end
    for _, effect in ipairs(edge[2]) do
        if effect == 'keep' then
            register()
            redis.call('HSET', key('c', name), 'created_at', edit.created_at, 'metadata', edit.metadata, 'version', edit.version,
                'owner', '', 'till', 0)
            redis.call('SADD', base .. ':conversations', name)
            append_items(name, edit.items)
        elseif effect == 'describe' then
            redis.call('HSET', key('c', name), 'metadata', edit.metadata)
        elseif effect == 'write' then
            append_items(name, edit.items)
            if edit.member then
                redis.call('LREM', key('m', name), 1, edit.member)
                refer(-1, split(edit.member))
            end
            redis.call('HINCRBY', key('c', name), 'version', 1)
        elseif effect == 'take' then
            redis.call('HSET', key('c', name), 'owner', edit.owner, 'till', integer(now + args.lease))
        elseif effect == 'free' then
            redis.call('HSET', key('c', name), 'owner', '')
        elseif effect == 'remove' then
            remove_conversation(name)
        end
    end
end

local operations = {}

-- Returns the body of a response, how many of its last items are its output, and its items in reverse order; nothing if Redis has
-- evicted a part of it.
function operations.get()
    local row = response(args.id)
    local body = redis.pcall('GET', key('b', args.id))
    if is_final(state_of(row)) or not row or type(body) ~= 'string' then return false end
    local items = {}
    local link = row.tip
    while link ~= '' do
        local segment = load(key('s', link))
        if not segment then return false end
        for place = #segment[3], 1, -2 do
            local item = body_of(segment[3][place - 1], segment[3][place])
            if not item then return false end
            items[#items + 1] = item
        end
        link = segment[1]
    end
    return {body, row.outputs, items}
end

-- Returns events of a response (none if `first` is before the oldest stored one), the position of its log, its state and its
-- owner. A lost response is written into the indexes, which may have been evicted, so that a server ends it.
function operations.read()
    local row = response(args.id)
    local state = state_of(row)
    if is_final(state) or not row then return false end
    if STORED[state].adopt then
        pcall(register) -- fails if there is no memory
        pcall(index_lease, args.id, row)
    end
    local frames = {}
    if args.first >= row.oldest then
        local start = args.first - row.oldest
        frames = redis.call('LRANGE', key('e', args.id), start, start + args.limit - 1)
    end
    return {frames, row.oldest, row.following, state, row.cancelled, row.owner, row.epoch}
end

-- Returns items by their ids; of two with the same id, the later one.
function operations.find()
    local bodies = {}
    for index, id in ipairs(args.ids) do
        local items = load(key('i', id))
        bodies[index] = items and items[#items] or ''
    end
    return bodies
end

-- Returns all tenants.
function operations.tenants() return redis.call('SMEMBERS', TENANTS) end

-- Returns {end of the lease, name} of the responses whose lease has ended, or dates from before the clock was set back far.
function operations.lost()
    local lost = {}
    for _, name in ipairs(lapsed(':leases', args.limit)) do
        local row = response(name)
        if not row then set_index(':leases', name) end
        if STORED[state_of(row)].adopt and #lost < args.limit then lost[#lost + 1] = {integer(row.till), name} end
    end
    return lost
end

-- Removes some expired responses; returns how many, and the names of some responses whose logs have expired.
function operations.sweep()
    local names = {}
    if args.logs >= 0 then
        names = redis.call('ZRANGEBYSCORE', base .. ':logged', '-inf', integer(now - args.logs), 'LIMIT', 0, args.limit)
    end
    return {expire(args.limit), names}
end

function operations.conversation_items()
    if not conversation(args.id) then return false end
    local bodies = {}
    for _, member in ipairs(redis.call('LRANGE', key('m', args.id), 0, -1)) do
        bodies[#bodies + 1] = body_of(split(member))
    end
    return bodies
end

-- Fires an edge of a conversation unless `trigger` is empty, and returns the conversation; false if there is no such conversation
-- or item, 'refused' and the owner if there is no such edge.
function operations.conversation()
    local name = args.id
    local row = conversation(name)
    if args.trigger == 'create' then -- the new conversation replaces the one with its id
        remove_conversation(name)
        row = nil
    end
    if not row and args.trigger ~= 'create' then return false end
    if args.trigger == '' then return {row.created_at, row.metadata, row.version} end

    if args.item ~= '' then -- the first member with that id is removed
        for _, member in ipairs(redis.call('LRANGE', key('m', name), 0, -1)) do
            if not args.member and member:sub(17) == args.item then args.member = member end
        end
        if not args.member then return false end
    end
    local edge = conversation_edge(row, args.trigger, args.owner)
    if not edge then return {'refused', row.owner} end
    carry_out(name, edge, args)
    row = conversation(name) or row
    return {row.created_at, row.metadata, row.version}
end

-- Fires an edge of a response. Every refusal comes before the first effect of the edge.
function operations.write()
    local name = args.id
    local row = response(name)
    local state = state_of(row)
    if row and is_final(state) then -- expired, but not yet swept
        remove(name, row)
        row, state = nil, 'absent'
    end
    row = row or {tip = '', outputs = 0, owner = '', epoch = 0, till = 0, cancelled = 0, oldest = 0, following = 0, written = 0}
    local edge = edge_of(STORED[state], args.trigger, row.owner == args.owner and row.epoch == args.epoch)
    if not edge then return {'refused', state, row.epoch, row.owner} end
    local effects = {}
    for _, effect in ipairs(edge[2]) do effects[effect] = true end

    local joined
    if effects.log and args.first ~= row.following then return {'sequence', integer(row.following)} end
    if effects.join and args.conversation ~= '' then
        local target = conversation(args.conversation)
        joined = target and conversation_edge(target, 'join', args.holder)
        if not joined then return {'changed', state} end
    end
    local stored = effects.keep and count_stored(args.items) or 0
    if stored < #args.items and not args.items[stored + 1][2] then return {'incomplete', stored} end

    if not (effects.keep or effects.log) then write_without_memory() end -- the edge frees memory, or writes a few bytes
    register()
    if state == 'absent' then redis.call('DEL', key('e', name)) end -- of a response that has been evicted without its events
    row.state = edge[1]
    if effects.keep then
        local tip = row.tip
        row.tip, row.outputs, row.written = add_chain(args.items, stored), args.outputs, now
        redis.call('SET', key('b', name), args.body)
        drop_chain(tip)
    end
    if joined then carry_out(args.conversation, joined, {items = args.added}) end
    if effects.take then row.owner, row.epoch = args.owner, row.epoch + 1 end
    if effects.take or effects.extend then row.till, row.written = now + args.lease, now end
    if effects.log then
        for _, frame in ipairs(args.frames) do redis.call('RPUSH', key('e', name), frame) end
        row.following = row.following + #args.frames
    end
    if effects.flag then row.cancelled = 1 end
    if effects.release then row.owner = '' end
    if effects.trim then
        redis.call('DEL', key('e', name))
        row.oldest = row.following
    end

    if effects.erase then
        redis.call('DEL', key('b', name))
        drop_chain(row.tip)
        row.tip, row.outputs, row.till = '', 0, now + args.lease
    end

    if effects.remove then
        remove(name, row)
    else
        save_response(name, row)
        set_index(':hidden', name, effects.erase and row.till)
        set_index(':written', name, not effects.erase and row.written)
        set_index(':logged', name, STORED[row.state].trim and row.oldest < row.following and row.written)
        index_lease(name, row)
    end
    if effects.wake then notify(name) end
    if effects.keep then expire(4) end -- each stored response makes room by removing a few expired ones
    return {'ok', row.epoch, row.cancelled}
end

-- Layouts

-- Returns the version of the layout; nothing for an empty server.
function operations.layout() return layout end

local function binary(hex) return (hex:gsub('..', function(byte) return string.char(tonumber(byte, 16)) end)) end

-- Migrates a response or a conversation of layout 1, which had hashes r:ID, l:LINK and i:DIGEST, and lists n:ID of digests, all in
-- hexadecimal.
function operations.migrate()
    local old, members = key('r', args.id), key('m', args.id)
    if redis.call('TYPE', old).ok == 'hash' then
        local row, items = {}, {}
        for index, field in ipairs(FIELDS) do
            local value = redis.call('HGET', old, field)
            row[field] = (field == 'state' or field == 'tip' or field == 'owner') and value or tonumber(value)
        end
        local link = row.tip
        while link ~= '' do
            local before, item = unpack(redis.call('HMGET', key('l', link), 'before', 'item'))
            local id, body = unpack(redis.call('HMGET', key('i', item), 'id', 'body'))
            table.insert(items, 1, {binary(link), binary(item), id, body})
            link = before
        end
        row.tip = add_chain(items, count_stored(items))
        redis.call('SET', key('b', args.id), redis.call('HGET', old, 'body'))
        redis.call('DEL', old)
        save_response(args.id, row)
    else
        for place, digest in ipairs(redis.call('LRANGE', members, 0, -1)) do
            if redis.call('TYPE', key('i', digest)).ok == 'hash' then
                local id, body = unpack(redis.call('HMGET', key('i', digest), 'id', 'body'))
                refer(1, binary(digest), id, body)
                redis.call('LSET', members, place - 1, binary(digest) .. id)
            end
        end
    end
end

return operations[args.operation]()
