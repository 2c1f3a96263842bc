-- Sixteen requests in one piece, as a browser of old or a busy proxy would send them.
local depth = 16
local batch

init = function(args)
    local requests = {}
    for i = 1, depth do
        requests[i] = wrk.format(nil, nil)
    end
    batch = table.concat(requests)
end

request = function()
    return batch
end

-- Prints the figures.
dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "report.lua")
