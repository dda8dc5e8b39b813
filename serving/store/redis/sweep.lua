-- Removes some responses that are stored no longer, and names some whose log is.
local names = {}
if asked.logs > 0 then
    names = redis.call('ZRANGEBYSCORE', base .. ':logged', '-inf', whole(now - asked.logs), 'LIMIT', 0, asked.limit)
end
return {expire(asked.limit), names}
