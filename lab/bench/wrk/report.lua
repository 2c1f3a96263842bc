-- Prints wrk's own figures in one line that a program can read.
done = function(summary, latency, requests)
    local e = summary.errors
    io.write(string.format("RESULT %d %d %d %d %d %d %d %d %d %d %d %d %d\n",
        summary.requests, summary.duration, summary.bytes,
        e.connect, e.read, e.write, e.status, e.timeout,
        latency:percentile(50), latency:percentile(99),
        latency.mean, latency.stdev, latency.max))
end
