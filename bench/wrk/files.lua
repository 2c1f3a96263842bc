-- Asks for files at random, by number, and prints wrk's own figures in one line.
local count = tonumber(os.getenv("FILES"))
local folder = wrk.path

init = function()
    math.randomseed(1)
end

request = function()
    return wrk.format("GET", folder .. math.random(count))
end

done = function(summary, latency)
    local e = summary.errors
    io.write(string.format("RESULT %d %d %d %d %d %d %d %d %d %d %d %d\n",
        summary.requests, summary.duration, summary.bytes,
        e.connect, e.read, e.write, e.status, e.timeout,
        latency:percentile(50), latency:percentile(99),
        latency.mean, latency.stdev))
end
