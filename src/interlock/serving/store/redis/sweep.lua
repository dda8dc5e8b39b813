-- Removes some responses that are stored no longer, and names some whose log is.
local names = {}
if args.logs > 0 then
    names = redis.call('ZRANGEBYSCORE', base .. ':logged', '-inf', whole(now - args.logs), 'LIMIT', 0, args.limit)
end
return {expire(args.limit), names}
