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

done = function(summary, latency, requests)
    local e = summary.errors
    io.write(string.format("RESULT %d %d %d %d %d %d %d %d %d %d %d %d\n",
        summary.requests, summary.duration, summary.bytes,
        e.connect, e.read, e.write, e.status, e.timeout,
        latency:percentile(50), latency:percentile(99),
        latency.mean, latency.stdev))
end
