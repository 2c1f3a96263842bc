-- Counts responses by the class of their status.
local threads = {}

function setup(thread)
    table.insert(threads, thread)
end

function init(args)
    passed, refused, failed = 0, 0, 0
end

function response(status, headers, body)
    if status < 400 then
        passed = passed + 1
    elseif status < 500 then
        refused = refused + 1
    else
        failed = failed + 1
    end
end

function done(summary, latency, requests)
    local sums = { 0, 0, 0 }
    for _, thread in ipairs(threads) do
        sums[1] = sums[1] + thread:get("passed")
        sums[2] = sums[2] + thread:get("refused")
        sums[3] = sums[3] + thread:get("failed")
    end
    io.write(string.format("STATUSES %d %d %d\n", sums[1], sums[2], sums[3]))
    local e = summary.errors
    io.write(string.format("RESULT %d %d %d %d %d %d %d %d %d %d %d %d %d\n",
        summary.requests, summary.duration, summary.bytes,
        e.connect, e.read, e.write, e.status, e.timeout,
        latency:percentile(50), latency:percentile(99),
        latency.mean, latency.stdev, latency.max))
end
