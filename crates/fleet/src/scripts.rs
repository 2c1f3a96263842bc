//! The scripts that run on the engine. Each has its twin in [`crate::model`], and a test runs both
//! against each other.
//!
//! They use what Redis 5 and Valkey have: `TIME` before writes is allowed since effects are
//! replicated, and all keys of a call are in `KEYS`.

use crate::call::Script;

/// Announces a node and returns the engine's time in milliseconds and the nodes of the last 10
/// seconds.
///
/// `KEYS[1]`: a sorted set of announcements by time. `ARGV[1]`: the announcement, of which the text
/// up to the first space names the node; `ARGV[2]`: the name.
pub static HELLO: Script = Script {
    name: "hello",
    text: r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for _, known in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if known ~= ARGV[1] and string.sub(known, 1, #ARGV[2] + 1) == ARGV[2] .. ' ' then
    redis.call('ZREM', KEYS[1], known)
  end
end
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 10000)
redis.call('PEXPIRE', KEYS[1], 60000)
return {now, redis.call('ZRANGE', KEYS[1], 0, 99)}
",
};

/// Adds requests to leaky buckets and returns their content, in thousandths of requests. A bucket
/// that is the key of another program is left alone: its answer is a text.
///
/// The content may fall below zero by what leaks within the window, because a node reports requests
/// up to an interval after it let them pass; they must not count as if all had come just now. And
/// by one request, because the first one of all leaves a bucket empty, as in a zone.
///
/// `KEYS`: buckets. `ARGV[1]`: thousandths that leak each second; `ARGV[2]`: the window in
/// milliseconds; then the thousandths to add to each bucket, or, as `=N`, those to which it is
/// raised if it has less.
pub static LIMIT: Script = Script {
    name: "limit",
    text: r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local rate, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local least = -math.floor(rate * window / 1000) - 1000
local out = {}
for i, key in ipairs(KEYS) do
  local old = redis.pcall('GET', key)
  local last, excess = now, least
  local foreign = type(old) == 'table'
  if type(old) == 'string' then
    local l, e = string.match(old, '^w1 (%d+) (%-?%d+)$')
    if l then
      last, excess = tonumber(l), tonumber(e)
    else
      foreign = true
    end
  end
  if foreign then
    out[i] = 'foreign'
  else
    if now > last then
      excess = excess - math.floor(rate * (now - last) / 1000)
    end
    if excess < least then excess = least end
    local level = string.match(ARGV[2 + i], '^=(%d+)$')
    if level then
      excess = math.max(excess, tonumber(level))
    else
      excess = excess + tonumber(ARGV[2 + i])
    end
    local ttl = window + 1000
    if excess > 0 then ttl = ttl + math.ceil(excess * 1000 / rate) end
    redis.call('SET', key, string.format('w1 %.0f %.0f', now, excess), 'PX',
      string.format('%.0f', ttl))
    out[i] = excess
  end
end
return out
",
};

/// Notes how many connections of some keys a node has, and returns how many the others have. A
/// count that was not repeated within its lifetime is none: the node is gone. Neither is one of the
/// far future: the engine's clock was set back.
///
/// `KEYS`: hashes of counts by node. `ARGV[1]`: the node; `ARGV[2]`: lifetime of counts in
/// milliseconds; then a count for each key.
pub static CONNECTIONS: Script = Script {
    name: "connections",
    text: r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local node, ttl = ARGV[1], tonumber(ARGV[2])
local out = {}
for i, key in ipairs(KEYS) do
  local all = redis.pcall('HGETALL', key)
  if all.err then
    out[i] = 'foreign'
  else
    local sum = 0
    for j = 1, #all, 2 do
      local count, at = string.match(all[j + 1], '^(%d+) (%d+)$')
      if count and all[j] ~= node then
        local age = now - tonumber(at)
        if age < ttl and age >= -ttl then
          sum = sum + tonumber(count)
        else
          redis.call('HDEL', key, all[j])
        end
      end
    end
    if tonumber(ARGV[2 + i]) > 0 then
      redis.call('HSET', key, node, string.format('%s %.0f', ARGV[2 + i], now))
      redis.call('PEXPIRE', key, ttl)
    else
      redis.call('HDEL', key, node)
    end
    out[i] = sum
  end
end
return out
",
};

/// Counts a request in a leaky bucket if it is not too many. Returns 1 or 0, and the thousandths
/// that are in the bucket with it.
///
/// `KEYS[1]`: the bucket. `ARGV[1]`: thousandths that leak each second; `ARGV[2]`: thousandths that
/// may be in it.
pub static STRICT: Script = Script {
    name: "strict",
    text: r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local old = redis.call('GET', KEYS[1])
local excess = 0
if old then
  local last, was = string.match(old, '^s1 (%d+) (%d+)$')
  if not last then return 'foreign' end
  local ms = now - tonumber(last)
  if ms < 0 then ms = 0 end
  excess = tonumber(was) - math.floor(rate * ms / 1000) + 1000
  if excess < 0 then excess = 0 end
end
if excess > burst then return {0, excess} end
redis.call('SET', KEYS[1], string.format('s1 %.0f %.0f', now, excess), 'PX',
  string.format('%.0f', math.ceil((excess + 1000) * 1000 / rate) + 1000))
return {1, excess}
",
};

/// Writes pairs of a table. The later write wins by the engine's time; of two at the same
/// millisecond, that of the greater node. A write of the future loses: the engine's clock was set
/// back. Returns the engine's time in milliseconds, then for each
/// pair 1, or the record that won. First it takes out expired records, twice as many as it writes,
/// so that they do not pile up.
///
/// A record is `1 STAMP NODE EXPIRES KIND` and a line feed, then the value. Kinds: `s` for a value,
/// `t` for a tombstone. Times are milliseconds since 1970 by the engine's clock; `EXPIRES` is 0 for
/// never.
///
/// `KEYS`: version, records, index by version, epoch, index by expiry. `ARGV[1]`: the node;
/// `ARGV[2]`: lifetime of tombstones in milliseconds; then five for each pair: key, time of the
/// write, lifetime left in milliseconds or 0, kind (`s`, `t`, or `o`: an old value, written only if
/// there is none), value.
pub static PUSH: Script = Script {
    name: "push",
    text: r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('SET', KEYS[4], string.format('%.0f-%s', now, ARGV[1]), 'NX')
local until_now = string.format('%.0f', now)
local most = math.max(20, 2 * math.floor((#ARGV - 2) / 5))
local gone = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', until_now, 'LIMIT', 0, most)
for _, key in ipairs(gone) do
  redis.call('HDEL', KEYS[2], key)
  redis.call('ZREM', KEYS[3], key)
  redis.call('ZREM', KEYS[5], key)
end
local out = {now}
for i = 3, #ARGV, 5 do
  local key, kind = ARGV[i], ARGV[i + 3]
  local stamp, left = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  if stamp > now then stamp = now end
  if kind == 'o' then stamp = 0 end
  local old = redis.call('HGET', KEYS[2], key)
  local wins = true
  if old then
    local s, node, expires = string.match(old, '^1 (%d+) (%S+) (%d+) %a\n')
    if s and (expires == '0' or tonumber(expires) > now) then
      s = tonumber(s)
      wins = kind ~= 'o' and (s > now or stamp > s or (stamp == s and ARGV[1] >= node))
    end
  end
  if wins then
    local expires = 0
    if kind == 't' then
      expires = now + tonumber(ARGV[2])
    elseif left > 0 then
      expires = now + left
    end
    local shown = kind == 't' and 't' or 's'
    redis.call('HSET', KEYS[2], key,
      string.format('1 %.0f %s %.0f %s\n', stamp, ARGV[1], expires, shown) .. ARGV[i + 4])
    redis.call('ZADD', KEYS[3], redis.call('INCR', KEYS[1]), key)
    if expires > 0 then
      redis.call('ZADD', KEYS[5], string.format('%.0f', expires), key)
    else
      redis.call('ZREM', KEYS[5], key)
    end
    out[#out + 1] = 1
  else
    out[#out + 1] = old
  end
end
return out
",
};

/// Returns the pairs of a table that were written after a version: the epoch, the latest version,
/// the engine's time in milliseconds, then three for each pair: key, version, record. The epoch
/// changes when the engine has lost everything.
///
/// `KEYS` as for [`PUSH`]. `ARGV[1]`: the version; `ARGV[2]`: the most pairs; `ARGV[3]`: about how
/// many bytes.
pub static PULL: Script = Script {
    name: "pull",
    text: r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local out = {redis.call('GET', KEYS[4]) or '', redis.call('GET', KEYS[1]) or '0', now}
local names = redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. ARGV[1], '+inf', 'WITHSCORES',
  'LIMIT', 0, ARGV[2])
local bytes = 0
for i = 1, #names, 2 do
  local record = redis.call('HGET', KEYS[2], names[i]) or ''
  out[#out + 1] = names[i]
  out[#out + 1] = names[i + 1]
  out[#out + 1] = record
  bytes = bytes + #names[i] + #record
  if bytes > tonumber(ARGV[3]) then break end
end
return out
",
};

/// Adds purges to the list of a cache, which keeps the latest ones.
///
/// `KEYS`: version, list by version, epoch. `ARGV[1]`: the node; `ARGV[2]`: the most to keep;
/// then the purges.
pub static PURGE: Script = Script {
    name: "purge",
    text: r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('SET', KEYS[3], string.format('%.0f-%s', now, ARGV[1]), 'NX')
for i = 3, #ARGV do
  local version = redis.call('INCR', KEYS[1])
  redis.call('ZADD', KEYS[2], version, string.format('%.0f %s ', version, ARGV[1]) .. ARGV[i])
end
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1 - tonumber(ARGV[2]))
return 1
",
};

/// Returns the purges of a cache after a version: the epoch, the latest version, the oldest version
/// that is kept, then the purges, each as `VERSION NODE ` and its text.
///
/// `KEYS` as for [`PURGE`]. `ARGV[1]`: the version; `ARGV[2]`: the most purges.
pub static PURGES: Script = Script {
    name: "purges",
    text: r"
local latest = redis.call('GET', KEYS[1]) or '0'
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
local out = {redis.call('GET', KEYS[3]) or '', latest, first[2] or latest + 1}
local after = '(' .. ARGV[1]
local list = redis.call('ZRANGEBYSCORE', KEYS[2], after, '+inf', 'LIMIT', 0, ARGV[2])
for _, text in ipairs(list) do out[#out + 1] = text end
return out
",
};

/// Exchanges the files of a folder, and gives or keeps the lock of the server that writes them.
/// Returns the fence of the caller's lock or 0, the latest version, the epoch, then the name and
/// the text of each file that was changed after the caller's version. The text of a removed file is
/// empty, and its name is in the list for 30 days: a server that was away for longer keeps the
/// file, which nobody uses. A name that has a file again stays, whatever KEYS[7] says: an older
/// server does not know that key.
///
/// `KEYS`: lock, fence, version, files, index by version, epoch, names of files that are gone, by
/// time. `ARGV[1]`: the node; `ARGV[2]`: the fence of the lock that it keeps, or 0; `ARGV[3]`: the
/// lifetime of the lock in milliseconds, or 0 to get none; `ARGV[4]`, `ARGV[5]`: its version and
/// epoch; then two for each file that it writes: the name and the text.
pub static FOLDER: Script = Script {
    name: "folder",
    text: r"
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local fence, ttl, held = tonumber(ARGV[2]), ARGV[3], 0
local lock = redis.call('GET', KEYS[1])
local number, holder
if lock then
  number, holder = string.match(lock, '^a1 (%d+) (%S+)$')
  if not number then return 'foreign' end
end
if fence > 0 then
  if holder == ARGV[1] and tonumber(number) == fence then held = fence end
elseif ttl ~= '0' and (not holder or holder == ARGV[1]) then
  held = redis.call('INCR', KEYS[2])
end
if held > 0 then
  redis.call('SET', KEYS[1], string.format('a1 %.0f %s', held, ARGV[1]), 'PX', ttl)
end
if held > 0 and fence > 0 and #ARGV > 5 then
  redis.call('SET', KEYS[6], string.format('%.0f-%s', now, ARGV[1]), 'NX')
  for i = 6, #ARGV, 2 do
    redis.call('ZADD', KEYS[5], redis.call('INCR', KEYS[3]), ARGV[i])
    if ARGV[i + 1] == '' then
      redis.call('HDEL', KEYS[4], ARGV[i])
      redis.call('ZADD', KEYS[7], string.format('%.0f', now), ARGV[i])
    else
      redis.call('HSET', KEYS[4], ARGV[i], ARGV[i + 1])
      redis.call('ZREM', KEYS[7], ARGV[i])
    end
  end
  local long_ago = string.format('%.0f', now - 2592000000)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', long_ago)) do
    if redis.call('HEXISTS', KEYS[4], name) == 0 then redis.call('ZREM', KEYS[5], name) end
    redis.call('ZREM', KEYS[7], name)
  end
end
local epoch, after = redis.call('GET', KEYS[6]) or '', ARGV[4]
local version = redis.call('GET', KEYS[3]) or '0'
if epoch ~= ARGV[5] or tonumber(after) > tonumber(version) then after = '0' end
local out = {held, version, epoch}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '(' .. after, '+inf')) do
  out[#out + 1] = name
  out[#out + 1] = redis.call('HGET', KEYS[4], name) or ''
end
return out
",
};

/// All scripts.
pub static ALL: [&Script; 9] =
    [&HELLO, &LIMIT, &CONNECTIONS, &STRICT, &PUSH, &PULL, &PURGE, &PURGES, &FOLDER];
