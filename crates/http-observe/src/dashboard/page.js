"use strict";
const here = location.pathname.replace(/\/+$/, "");
const WRITE = /*WRITE*/false;
const EVERY = 2000, KEEP = 90;
const $ = (id) => document.getElementById(id);
const el = (name, text, cls) => {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
};
/* A worker that stands still holds its connections: another connection gets to another worker. */
const FREE = 3, waiting = [];
let busy = 0;
/* A browser has six connections to a server: some are left for the questions about the workers. */
const turn = async (work) => {
  if (busy < FREE) busy++; else await new Promise((go) => waiting.push(go));
  try { return await work(); } finally { if (waiting.length) waiting.shift()(); else busy--; }
};
const ask = (path, limit) => fetch(here + "/api/9/" + path, { cache: "no-store", signal: AbortSignal.timeout(limit) });
const get = (path) => turn(async () => {
  const again = (limit) => () => ask(path, limit);
  const answer = await ask(path, 1500).catch(again(3000)).catch(again(15000));
  if (!answer.ok) throw new Error(path + ": " + answer.status);
  return answer.json();
});
const UNITS = ["", "k", "M", "G", "T", "P"];
const short = (n) => {
  let i = 0;
  while (n >= 1000 && i < 5) { n /= 1000; i++; }
  return (i && n < 10 ? n.toFixed(1) : Math.round(n)) + UNITS[i];
};
const share = (n, of) => of ? (100 * n / of).toFixed(n && n / of < 0.1 ? 1 : 0) + " %" : "–";
const ms = (us) => us === null ? "> 60 s" : us === undefined ? "–" : us < 1000 ? us + " µs" : us < 1e6 ? +(us / 1000).toPrecision(3) + " ms" : +(us / 1e6).toPrecision(3) + " s";
const clock = (text) => text ? new Date(text).toLocaleTimeString() : "";
/* Empty buckets are left out. A bucket's times count as spread evenly over the bucket, which is at most a fifth wide. */
const quantile = (time, q) => {
  if (!time || !time.count) return undefined;
  const bounds = Object.keys(time.buckets).filter((b) => b !== "+Inf").sort((a, b) => a - b);
  let left = Math.ceil(time.count * q);
  for (const bound of bounds) {
    const n = time.buckets[bound];
    if (n >= left) return Math.round(bound * 1e6 * (1 - (1 - left / n) / 5));
    left -= n;
  }
  return null;
};

/* Tables: rows stay, cells change, so that the focus and a selection last. */
const tables = {};
const ROWS = 200;
const table = (id, columns, rows, { filter, down, by } = {}) => {
  const box = $(id);
  let t = tables[id];
  if (!t) {
    t = tables[id] = { by: by || 0, down: !!down, rows: new Map() };
    t.el = el("table");
    const tr = el("tr");
    columns.forEach((c, i) => {
      const th = el("th", undefined, c.text ? "text" : "");
      th.scope = "col";
      const b = el("button", c.name);
      b.type = "button";
      b.addEventListener("click", () => { t.down = t.by === i ? !t.down : !c.text; t.by = i; t.draw(); });
      th.append(b);
      tr.append(th);
    });
    const head = el("thead");
    head.append(tr);
    t.heads = [...tr.children];
    t.body = el("tbody");
    t.el.append(head, t.body);
    /* Layout takes most of the time of an update: a long table shows its first rows. */
    t.more = el("p");
    t.all = el("button", "Show all");
    t.all.type = "button";
    t.all.addEventListener("click", () => { t.whole = true; t.draw(); });
    t.count = el("span");
    t.more.append(t.count, " ", t.all);
    if (filter) $(filter).addEventListener("input", () => t.draw());
  }
  t.draw = () => {
    const wanted = filter ? $(filter).value.toLowerCase() : "";
    const shown = rows.filter((r) => !wanted || (r.key + " " + (r.state || "")).toLowerCase().includes(wanted));
    const held = t.body.contains(document.activeElement) ? document.activeElement : null;
    const value = (r) => columns[t.by].sort(r);
    shown.sort((a, b) => {
      const x = value(a), y = value(b);
      const order = x < y ? -1 : x > y ? 1 : a.key < b.key ? -1 : 1;
      return t.down ? -order : order;
    });
    const cut = !t.whole && shown.length > ROWS;
    t.count.textContent = cut ? ROWS + " of " + shown.length + " rows are shown." : "";
    t.more.hidden = !cut;
    if (cut) shown.length = ROWS;
    t.heads.forEach((th, i) => th.setAttribute("aria-sort", i === t.by ? (t.down ? "descending" : "ascending") : "none"));
    const seen = new Set();
    let after = null;
    for (const r of shown) {
      seen.add(r.key);
      let row = t.rows.get(r.key);
      if (!row) {
        row = { tr: el("tr"), cells: columns.map((c) => el("td")), texts: [], classes: [] };
        row.tr.append(...row.cells);
        t.rows.set(r.key, row);
      }
      row.data = r;
      columns.forEach((c, i) => {
        const td = row.cells[i];
        if (c.fill) { if (!td.firstChild) { td.className = "text"; c.fill(td, () => row.data); } if (c.update) c.update(td, r); return; }
        const text = c.show(r);
        if (row.texts[i] !== text) td.textContent = row.texts[i] = text;
        const cls = ((c.text ? "text " : "") + (c.cls ? c.cls(r) : "")).trim();
        if (row.classes[i] !== cls) td.className = row.classes[i] = cls;
      });
      const next = after ? after.nextSibling : t.body.firstChild;
      if (next !== row.tr) t.body.insertBefore(row.tr, next);
      after = row.tr;
    }
    for (const [key, row] of t.rows) if (!seen.has(key)) { row.tr.remove(); t.rows.delete(key); }
    /* A row that moves loses the focus. */
    if (held && held.isConnected && document.activeElement !== held) held.focus({ preventScroll: true });
  };
  if (!rows.length) {
    box.replaceChildren(el("p", "None."));
    return;
  }
  if (t.el.parentNode !== box) box.replaceChildren(t.el, t.more);
  t.draw();
};
const column = (name, get, show, cls) => ({ name, sort: get, show: (r) => show ? show(get(r), r) : String(get(r)), cls });
const words = (name, get, cls) => ({ name, text: true, sort: get, show: (r) => String(get(r)), cls });

/* Rates over the last minutes, as lines. */
const series = {};
const line = (name, value, unit) => {
  let s = series[name];
  if (!s) {
    s = series[name] = { values: [] };
    const figure = el("figure");
    s.caption = el("figcaption");
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 " + (KEEP - 1) + " 30");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    s.line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    svg.append(s.line);
    figure.append(s.caption, svg);
    $("rates").append(figure);
  }
  s.values.push(value);
  if (s.values.length > KEEP) s.values.shift();
  const top = Math.max(1, ...s.values), from = KEEP - s.values.length;
  s.line.setAttribute("points", s.values.map((v, i) => (from + i) + "," + (29 - 28 * v / top).toFixed(1)).join(" "));
  s.caption.replaceChildren(el("b", short(value) + unit), " " + name + ", at most " + short(top) + unit);
};

let before = null;
const rate = (now, path, seconds) => {
  const at = (o) => path.reduce((v, name) => v && v[name], o) || 0;
  return before ? Math.max(0, at(now) - at(before)) / seconds : 0;
};
const STATE = { up: "good", draining: "warn", checking: "warn" };

const change = async (button, peer, what) => {
  const path = here + "/api/9/" + peer.engine + "/upstreams/" + encodeURIComponent(peer.group) + "/servers/" + peer.id;
  /* A disabled button would lose the focus. */
  if (button.ariaDisabled === "true") return;
  button.ariaDisabled = "true";
  try {
    const answer = await fetch(path, { method: "PATCH", headers: { "Content-Type": "application/json" }, body: JSON.stringify(what) });
    if (!answer.ok) alert((await answer.json()).error.text);
    await update();
  } finally { button.ariaDisabled = null; }
};

/* What is known of each server: its counters, the usual time until its answers, and for how long nothing has ended
   although something waits for an answer: streams of events, and WebSockets, do not. */
const past = new Map();
/* A failed exchange counts as answered with 502 or 504. */
const failed = (p) => Math.max(p.fails, p.responses ? p.responses["5xx"] : 0);
const peersOf = (upstreams, engine, times, seconds) => Object.entries(upstreams).flatMap(([group, u]) => u.peers.map((p) => {
  const name = engine + " " + group + " " + p.server, own = ((times || {})[group] || {})[p.server] || {}, time = own.time, head = own.header || { count: 0, sum_us: 0 };
  const now = { ended: (p.requests ?? p.connections) - p.active, fails: failed(p), active: p.active - (own.answering ?? p.active), count: head.count, sum: head.sum_us, waits: 0 };
  const last = past.get(name) || now;
  const ended = now.ended - last.ended, bad = now.fails - last.fails, n = now.count - last.count, us = n > 0 ? (now.sum - last.sum) / n : 0;
  if (!ended && last !== now && now.active && last.active) now.waits = last.waits + seconds;
  let trouble = "";
  if (now.waits >= .9 && last.usual < 5e5) trouble = "has stopped answering, " + now.active + " wait";
  else if (bad > 0 && bad >= ended * .01) trouble = "fails " + share(bad, Math.max(bad, ended));
  else if (us >= 1e6 || us >= 2e5 && us >= 5 * last.usual) trouble = "takes " + (us / 1e6).toFixed(1) + " s";
  now.usual = trouble || !us ? last.usual : last.usual === undefined ? us : (last.usual * 7 + us) / 8;
  past.set(name, now);
  return { ...p, engine, group, trouble, key: name + " " + p.id, done: p.requests ?? p.connections, bad, p50: quantile(time, .5), p99: quantile(time, .99) };
}));

const drawPeers = (peers) => {
  const columns = [
    words("Upstream", (p) => p.group), words("Server", (p) => p.name === p.server ? p.server : p.name + " (" + p.server + ")"),
    { name: "State", text: true, sort: (p) => (p.trouble || !STATE[p.state] ? "0" : "1") + p.state + p.key, cls: (p) => p.trouble && STATE[p.state] ? "warn" : STATE[p.state] || "bad",
      show: (p) => p.state + (p.downstart ? " since " + clock(p.downstart) : "") + (p.trouble ? ", " + p.trouble : "") },
    column("Under way", (p) => p.active), column("Requests", (p) => p.done, short),
    column("Errors", (p) => p.done ? failed(p) / p.done : 0, (v, p) => share(failed(p), p.done), (p) => p.bad ? "bad" : ""),
    column("5xx", (p) => p.responses ? p.responses["5xx"] : 0, short),
    column("p50", (p) => p.p50 ?? -1, (v, p) => ms(p.p50)), column("p99", (p) => p.p99 === null ? 1e12 : p.p99 ?? -1, (v, p) => ms(p.p99)),
    column("Sent", (p) => p.sent, short), column("Received", (p) => p.received, short),
    words("Checks", (p) => !p.health_checks.checks ? "–" : (p.health_checks.last_passed ? "passed" : "failed") + ", " + p.health_checks.fails + " of " + p.health_checks.checks + " failed"),
  ];
  if (WRITE) columns.push({
    name: "Change", text: true, sort: (p) => p.state, fill: (td, peer) => {
      for (const [name, what] of [["drain", (p) => ({ drain: p.state !== "draining" })], ["down", (p) => ({ down: p.state !== "down" })]]) {
        const b = el("button", name);
        b.type = "button";
        b.addEventListener("click", () => change(b, peer(), what(peer())));
        td.append(b);
      }
    }, update: (td, p) => {
      const [drain, down] = td.children;
      drain.textContent = p.state === "draining" ? "Undrain" : "Drain";
      down.textContent = p.state === "down" ? "Up" : "Down";
      for (const b of [drain, down]) b.setAttribute("aria-label", b.textContent + " " + p.server + " of " + p.group);
      drain.hidden = p.engine !== "http";
    },
  });
  table("up", columns, peers, { filter: "f-up", by: 2 });
};

const drawZones = (now, seconds) => {
  const rows = [["server", "http", "server_zones"], ["location", "http", "location_zones"], ["stream", "stream", "server_zones"]].flatMap(([kind, , part]) => {
    const zones = kind === "stream" ? now.streamZones : now[part];
    const times = (now.own[kind === "stream" ? "stream_server_zones" : part] || {});
    return Object.entries(zones).map(([name, z]) => {
      const r = z.responses || z.sessions, t = times[name] || {};
      return { key: kind + " " + name, kind, name, z, r, total: z.requests ?? z.connections, rate: rate(now, [kind === "stream" ? "streamZones" : part, name, z.requests === undefined ? "connections" : "requests"], seconds), p99: quantile(t.time, .99), lost: t.lost || 0 };
    });
  });
  table("zones", [
    words("Kind", (z) => z.kind), words("Name", (z) => z.name), column("Requests", (z) => z.total, short), column("per second", (z) => z.rate, (v) => v < 10 ? v.toFixed(1) : short(v)),
    column("Under way", (z) => z.z.processing ?? 0), column("4xx", (z) => z.r["4xx"], (v, z) => share(v, z.r.total)),
    column("5xx", (z) => z.r["5xx"], (v, z) => share(v, z.r.total), (z) => z.r["5xx"] ? "warn" : ""), column("Discarded", (z) => z.z.discarded, short),
    column("p99", (z) => z.p99 === null ? 1e12 : z.p99 ?? -1, (v, z) => ms(z.p99)), column("Received", (z) => z.z.received, short), column("Sent", (z) => z.z.sent, short), column("Lost", (z) => z.lost, short),
  ], rows, { filter: "f-zones" });
};

const STILL = 1500;
const standing = (status) => (status.workers || []).filter((w) => w.silent_ms > STILL).map((w) => "worker " + w.pid + " stands still for " + (w.silent_ms / 1000).toFixed(1) + " s");
const drawRest = (now) => {
  const cached = Object.entries(now.caches).map(([key, c]) => {
    const n = (...names) => names.reduce((sum, name) => sum + c[name].responses, 0);
    const all = n("hit", "stale", "updating", "revalidated", "miss", "expired", "bypass");
    const faults = ((now.status.cache || { zones: [] }).zones.find((z) => z.zone === key) || {}).faults || 0;
    return { key, c, all, hits: n("hit", "stale", "updating", "revalidated"), faults };
  });
  table("caches", [words("Cache", (c) => c.key), column("Hits", (c) => c.all ? c.hits / c.all : 0, (v, c) => share(c.hits, c.all)), column("Requests", (c) => c.all, short), column("Size", (c) => c.c.size, short),
    column("Full", (c) => c.c.max_size ? c.c.size / c.c.max_size : 0, (v, c) => share(c.c.size, c.c.max_size)), words("Files", (c) => c.c.cold ? "loading" : "known"), column("Faults", (c) => c.faults, short, (c) => c.faults ? "bad" : "")], cached);
  const limits = [["requests", now.limit_reqs], ["connections", now.limit_conns], ["stream", now.streamLimits]].flatMap(([kind, all]) => Object.entries(all).map(([name, l]) => ({ key: kind + " " + name, kind, name, l })));
  table("limits", [words("Kind", (l) => l.kind), words("Zone", (l) => l.name), column("Passed", (l) => l.l.passed, short), column("Delayed", (l) => l.l.delayed || 0, short),
    column("Refused", (l) => l.l.rejected, short, (l) => l.l.rejected ? "warn" : ""), column("In dry runs", (l) => l.l.rejected_dry_run, short)], limits);
  const full = (z) => z.used / (z.used + z.free || 1);
  table("slabs", [words("Zone", (z) => z.key), column("Full", full, (v) => share(v, 1), (z) => full(z) > .95 ? "bad" : ""), column("Pages used", (z) => z.used), column("free", (z) => z.free)],
    Object.entries(now.slabs).map(([key, z]) => ({ key, ...z.pages })));
  const loops = new Map((now.status.workers || []).map((w) => [w.pid, w]));
  table("workers", [column("Number", (w) => w.id), column("Process", (w) => w.pid), column("Connections", (w) => w.connections.active + w.connections.idle), column("idle", (w) => w.connections.idle), column("Requests", (w) => w.http.requests.total, short),
    column("Longest turn", (w) => w.loop.longest_turn_ms || 0, (v) => v + " ms"), words("Loop", (w) => w.loop.silent_ms > STILL ? "stands still" : "turns", (w) => w.loop.silent_ms > STILL ? "bad" : "good")],
    now.workers.map((w) => ({ ...w, loop: loops.get(w.pid) || {}, key: String(w.pid) })));
  table("slow", [
    { name: "Ended", text: true, sort: (r) => r.id, show: (r) => clock(r.time) }, words("Why", (r) => r.failed ? "failed" : "slow", (r) => r.failed ? "bad" : "warn"), column("Status", (r) => r.status), column("Took", (r) => r.times_us.total, ms),
    words("Request", (r) => r.method + " " + r.host + r.uri, () => "long"), words("Client", (r) => r.client), words("Location", (r) => r.location || r.server, () => "long"),
    words("Servers", (r) => r.tries.map((t) => t.server + " " + (t.status || "–") + (t.response_ms === undefined ? "" : " " + ms(t.response_ms * 1000))).join(", ") || "–"),
    words("Cache", (r) => r.cache || "–"), column("Head", (r) => r.times_us.head, ms), column("Access", (r) => r.times_us.access, ms), column("Content", (r) => r.times_us.content, ms), column("Sending", (r) => r.times_us.send, ms),
  ], now.slow.map((r) => ({ ...r, key: String(r.id) })), { down: true });
  table("certs", [words("Certificate", (c) => c.name), column("Days left", (c) => c.days, (d) => String(d), (c) => c.days < 14 ? "bad" : c.days < 30 ? "warn" : "good")], now.certs);
};

/* The sentence on top: what is wrong, the worst first. */
const judge = (now, peers) => {
  const said = [];
  const say = (level, text) => said.push([level, text]);
  const groups = new Map();
  for (const p of peers) (groups.get(p.engine + " " + p.group) || groups.set(p.engine + " " + p.group, []).get(p.engine + " " + p.group)).push(p);
  for (const all of groups.values()) {
    const out = all.filter((p) => !["up", "draining", "checking"].includes(p.state));
    if (!out.length) continue;
    const since = out.map((p) => p.downstart).filter(Boolean).sort()[0];
    say(out.length === all.length ? 2 : 1, out.length + " of " + all.length + " servers of " + all[0].group + " down" + (since ? " since " + clock(since) : "") + (out.length === 1 ? " (" + out[0].server + ")" : ""));
  }
  for (const [name, z] of Object.entries(now.server_zones)) {
    const last = before && before.server_zones[name];
    const n = last ? z.responses.total - last.responses.total : 0, bad = last ? z.responses["5xx"] - last.responses["5xx"] : 0;
    if (bad > 0 && n > 0 && bad / n >= .01) say(bad / n > .2 ? 2 : 1, "5xx " + share(bad, n) + " of " + name);
  }
  for (const p of peers) if (p.trouble) say(1, p.server + " of " + p.group + " " + p.trouble);
  for (const [name, z] of Object.entries(now.slabs)) if (z.pages.free === 0 || z.pages.used / (z.pages.used + z.pages.free) > .95) say(1, "zone " + name + " is full");
  for (const c of now.certs) if (c.days < 14) say(c.days < 2 ? 2 : 1, "certificate " + c.name + (c.days < 0 ? " expired" : " expires in " + c.days + " days"));
  const stall = (now.status.loop || {}).longest_turn_ms || 0, was = before ? (before.status.loop || {}).longest_turn_ms || 0 : stall;
  const still = standing(now.status);
  for (const text of still) say(2, text);
  if (now.took > 1500 && !still.length) say(1, "the server took " + (now.took / 1000).toFixed(1) + " s to answer");
  if (stall > was && stall > 200) say(1, "an event loop stood still for " + stall + " ms");
  const dropped = (now.status.logs || {}).dropped || 0;
  if (before && dropped > before.status.logs.dropped) say(1, "log lines are dropped");
  said.sort((a, b) => b[0] - a[0]);
  const level = said.length ? said[0][0] : 0;
  const text = said.length ? said.slice(0, 4).map((s) => s[1]).join("; ") + (said.length > 4 ? "; and " + (said.length - 4) + " more" : "") + "." : "All is well.";
  tell(["good", "warn", "bad"][level], (level === 2 ? "Trouble: " : level ? "Look: " : "") + text);
};
let heard = "";
const tell = (cls, text) => {
  if (heard === cls + text) return;
  heard = cls + text;
  $("now").className = cls;
  $("now").textContent = text;
};

const PARTS = { nginx: "nginx", connections: "connections", requests: "http/requests", server_zones: "http/server_zones", location_zones: "http/location_zones", caches: "http/caches", limit_reqs: "http/limit_reqs", limit_conns: "http/limit_conns", http: "http/upstreams", stream: "stream/upstreams", streamZones: "stream/server_zones", streamLimits: "stream/limit_conns", slabs: "slabs", workers: "workers", slow: "weir/slow_requests?last=50" };
const OWN = ["server_zones", "location_zones", "upstreams", "stream_server_zones", "stream_upstreams"];
let good = 0;
const update = async () => {
  const now = { at: Date.now(), own: {}, ...pulse };
  await Promise.all([...Object.entries(PARTS).map(async ([name, path]) => { now[name] = await get(path); }), ...OWN.map(async (name) => { now.own[name] = await get("weir/" + name); })]);
  const start = performance.now(), seconds = before ? (now.at - before.at) / 1000 : 1;
  now.certs = ((now.status.ssl || {}).certificates || []).map((c) => ({ key: c.file, name: c.file + (c.servers ? " (" + c.servers + ")" : ""), days: c.expired ? -1 : c.days_left }));
  const peers = [...peersOf(now.http, "http", now.own.upstreams, seconds), ...peersOf(now.stream, "stream", now.own.stream_upstreams, seconds)];
  $("about").textContent = now.nginx.build + " at " + location.host + ", configuration " + now.nginx.generation + " loaded " + new Date(now.nginx.load_timestamp).toLocaleString();
  if (before) {
    line("requests per second", rate(now, ["requests", "total"], seconds), "");
    line("connections accepted per second", rate(now, ["connections", "accepted"], seconds), "");
    line("open connections", now.connections.active + now.connections.idle, "");
    const bytes = (o) => Object.values(o.server_zones).reduce((sum, z) => sum + z.sent, 0);
    line("sent per second", Math.max(0, bytes(now) - bytes(before)) / seconds, "B");
  }
  drawPeers(peers);
  drawZones(now, seconds);
  drawRest(now);
  /* The workers may have been asked since. */
  judge(Object.assign(now, pulse), peers);
  performance.clearMeasures("update");
  performance.measure("update", { start });
  before = now;
  good = Date.now();
};

/* Apart from the rest: whether all workers turn, and whether any of them answers. Of several requests, each on a
   connection of its own, one reaches a worker that does. */
let pulse = { status: {}, took: 0 };
const ATTEMPTS = 6;
const first = (path) => new Promise((done, fail) => {
  const stops = [];
  let left = ATTEMPTS;
  const end = () => { left = 0; for (const stop of stops) stop.abort(); };
  const more = () => {
    if (!left || stops.length === ATTEMPTS) return;
    const stop = new AbortController();
    /* The first ones make room soon; the last ones have the time that a far or busy server needs. */
    setTimeout(() => stop.abort(), stops.length < ATTEMPTS / 2 ? 1500 : 15000);
    stops.push(stop);
    fetch(here + "/api/9/" + path, { cache: "no-store", signal: stop.signal }).then((answer) => answer.json())
      .then((value) => { done(value); end(); }).catch((e) => { if (left && !--left) fail(e); });
    setTimeout(more, 250);
  };
  more();
});
const beat = async () => {
  const at = Date.now();
  const late = setTimeout(() => tell("bad", "Trouble: no answer from the server since " + new Date(at).toLocaleTimeString() + "."), 3000);
  try {
    if (!document.hidden || !good) {
      pulse = { status: await first("weir/status"), took: Date.now() - at };
      const still = standing(pulse.status);
      if (still.length) tell("bad", "Trouble: " + still.join("; ") + ".");
    }
  } catch { /* The other requests tell. */ }
  clearTimeout(late);
  setTimeout(beat, 1000);
};
const run = async () => {
  try {
    if (!document.hidden || !good) await update();
  } catch (e) {
    tell("bad", "Stale: no answer from the server " + (good ? "since " + new Date(good).toLocaleTimeString() : "yet") + " (" + e.message + ").");
  }
  setTimeout(run, EVERY);
};
beat().then(run);
