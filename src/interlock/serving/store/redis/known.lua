-- Returns how many of the links of a conversation are stored already: those before one that is, are.
local low, high = 0, #args.links
while low < high do
    local middle = math.floor((low + high + 1) / 2)
    if redis.call('EXISTS', key('l', args.links[middle])) == 1 then low = middle else high = middle - 1 end
end
return low
