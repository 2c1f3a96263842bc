-- Requests files at random, by number.
local count = tonumber(os.getenv("FILES"))
local folder = wrk.path

init = function()
    math.randomseed(1)
end

request = function()
    return wrk.format("GET", folder .. math.random(count))
end

-- Prints the figures.
dofile(debug.getinfo(1, "S").source:match("^@(.*/)") .. "report.lua")
