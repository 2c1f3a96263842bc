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
const get = async (path) => {
  const answer = await fetch(here + "/api/9/" + path, { cache: "no-store", signal: AbortSignal.timeout(10000) });
  if (!answer.ok) throw new Error(path + ": " + answer.status);
  return answer.json();
};
const UNITS = ["", "k", "M", "G", "T", "P"];
const short = (n) => {
  let i = 0;
  while (n >= 1000 && i < 5) { n /= 1000; i++; }
  return (i && n < 10 ? n.toFixed(1) : Math.round(n)) + UNITS[i];
};
const share = (n, of) => of ? (100 * n / of).toFixed(n && n / of < 0.1 ? 1 : 0) + " %" : "–";
const ms = (us) => us === null ? "> 60 s" : us === undefined ? "–" : us < 1000 ? us + " µs" : us < 1e6 ? us / 1000 + " ms" : us / 1e6 + " s";
const clock = (text) => text ? new Date(text).toLocaleTimeString() : "";
const quantile = (time, q) => {
  if (!time || !time.count) return undefined;
  let left = Math.ceil(time.count * q);
  for (const [bound, n] of Object.entries(time.buckets).sort((a, b) => (a[0] === "+Inf") - (b[0] === "+Inf") || a[0] - b[0])) {
    left -= n;
    if (left <= 0) return bound === "+Inf" ? null : Math.round(bound * 1e6);
  }
  return null;
};

/* Tables: rows stay, cells change, so that the focus and a selection last. */
const tables = {};
const table = (id, columns, rows, filter) => {
  const box = $(id);
  let t = tables[id];
  if (!t) {
    t = tables[id] = { by: 0, down: false, rows: new Map() };
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
    if (filter) $(filter).addEventListener("input", () => t.draw());
  }
  t.draw = () => {
    const wanted = filter ? $(filter).value.toLowerCase() : "";
    const shown = rows.filter((r) => !wanted || r.key.toLowerCase().includes(wanted));
    const value = (r) => columns[t.by].sort(r);
    shown.sort((a, b) => {
      const x = value(a), y = value(b);
      const order = x < y ? -1 : x > y ? 1 : a.key < b.key ? -1 : 1;
      return t.down ? -order : order;
    });
    t.heads.forEach((th, i) => th.setAttribute("aria-sort", i === t.by ? (t.down ? "descending" : "ascending") : "none"));
    const seen = new Set();
    let after = null;
    for (const r of shown) {
      seen.add(r.key);
      let row = t.rows.get(r.key);
      if (!row) {
        row = { tr: el("tr"), cells: columns.map((c) => el("td", undefined, c.text ? "text" : "")) };
        row.tr.append(...row.cells);
        t.rows.set(r.key, row);
      }
      row.data = r;
      columns.forEach((c, i) => {
        const td = row.cells[i];
        if (c.fill) { if (!td.firstChild) c.fill(td, () => row.data); if (c.update) c.update(td, r); return; }
        const text = c.show(r);
        if (td.textContent !== text) td.textContent = text;
        const cls = (c.text ? "text " : "") + (c.cls ? c.cls(r) : "");
        if (td.className !== cls) td.className = cls;
      });
      const next = after ? after.nextSibling : t.body.firstChild;
      if (next !== row.tr) t.body.insertBefore(row.tr, next);
      after = row.tr;
    }
    for (const [key, row] of t.rows) if (!seen.has(key)) { row.tr.remove(); t.rows.delete(key); }
  };
  if (!rows.length) {
    box.replaceChildren(el("p", "None."));
    return;
  }
  if (t.el.parentNode !== box) box.replaceChildren(t.el);
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
  button.disabled = true;
  try {
    const answer = await fetch(path, { method: "PATCH", headers: { "Content-Type": "application/json" }, body: JSON.stringify(what) });
    if (!answer.ok) alert((await answer.json()).error.text);
    await update();
  } finally { button.disabled = false; }
};

const peersOf = (upstreams, engine, times) => Object.entries(upstreams).flatMap(([group, u]) => u.peers.map((p) => {
  const last = before && ((before[engine] || {})[group] || { peers: [] }).peers.find((q) => q.id === p.id);
  const count = (q) => q ? q.requests ?? q.connections : 0;
  const time = (((times || {})[group] || {})[p.server] || {}).time;
  return { ...p, engine, group, key: engine + " " + group + " " + p.server + " " + p.state, done: count(p), fresh: count(p) - count(last), bad: last ? p.fails - last.fails : 0, p50: quantile(time, .5), p99: quantile(time, .99) };
}));

const drawPeers = (peers) => {
  const columns = [
    words("Upstream", (p) => p.group), words("Server", (p) => p.name === p.server ? p.server : p.name + " (" + p.server + ")"),
    words("State", (p) => p.state + (p.downstart ? " since " + clock(p.downstart) : ""), (p) => STATE[p.state] || "bad"),
    column("Under way", (p) => p.active), column("Requests", (p) => p.done, short),
    column("Errors", (p) => p.done ? p.fails / p.done : 0, (v, p) => share(p.fails, p.done), (p) => p.bad ? "bad" : ""),
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
  table("up", columns, peers, "f-up");
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
  ], rows, "f-zones");
};

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
  table("workers", [column("Number", (w) => w.id), column("Process", (w) => w.pid), column("Connections", (w) => w.connections.active + w.connections.idle), column("idle", (w) => w.connections.idle), column("Requests", (w) => w.http.requests.total, short)],
    now.workers.map((w) => ({ ...w, key: String(w.pid) })));
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
  for (const p of peers) {
    const last = before && ((before.own.upstreams || {})[p.group] || {})[p.server], time = ((now.own.upstreams || {})[p.group] || {})[p.server];
    if (!last || !time) continue;
    const n = time.time.count - last.time.count, us = time.time.sum_us - last.time.sum_us;
    if (n > 0 && us / n > 1e6) say(1, p.server + " of " + p.group + " takes " + (us / n / 1e6).toFixed(1) + " s");
  }
  for (const [name, z] of Object.entries(now.slabs)) if (z.pages.free === 0 || z.pages.used / (z.pages.used + z.pages.free) > .95) say(1, "zone " + name + " is full");
  for (const c of now.certs) if (c.days < 14) say(c.days < 2 ? 2 : 1, "certificate " + c.name + (c.days < 0 ? " expired" : " expires in " + c.days + " days"));
  const stall = (now.status.loop || {}).longest_turn_ms || 0, was = before ? (before.status.loop || {}).longest_turn_ms || 0 : stall;
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

const PARTS = { nginx: "nginx", connections: "connections", requests: "http/requests", server_zones: "http/server_zones", location_zones: "http/location_zones", caches: "http/caches", limit_reqs: "http/limit_reqs", limit_conns: "http/limit_conns", http: "http/upstreams", stream: "stream/upstreams", streamZones: "stream/server_zones", streamLimits: "stream/limit_conns", slabs: "slabs", workers: "workers", status: "weir/status" };
const OWN = ["server_zones", "location_zones", "upstreams", "stream_server_zones"];
let good = 0;
const update = async () => {
  const now = { at: Date.now(), own: {} };
  await Promise.all([...Object.entries(PARTS).map(async ([name, path]) => { now[name] = await get(path); }), ...OWN.map(async (name) => { now.own[name] = await get("weir/" + name); })]);
  const seconds = before ? (now.at - before.at) / 1000 : 1;
  now.certs = ((now.status.ssl || {}).certificates || []).map((c) => ({ key: c.file, name: c.file + (c.servers ? " (" + c.servers + ")" : ""), days: c.expired ? -1 : c.days_left }));
  const peers = [...peersOf(now.http, "http", now.own.upstreams), ...peersOf(now.stream, "stream")];
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
  judge(now, peers);
  before = now;
  good = Date.now();
};
const run = async () => {
  try {
    if (!document.hidden || !good) await update();
  } catch (e) {
    tell("bad", "Stale: no data " + (good ? "since " + new Date(good).toLocaleTimeString() : "yet") + " (" + e.message + ").");
  }
  setTimeout(run, EVERY);
};
run();
