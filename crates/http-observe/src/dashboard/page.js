/* The page: what is wrong, the tabs, and the two seconds' round. */
let latest = null, before = null, view = "overview", round = 0, good = 0, busy = false;
const shown = {};

/* What is known of each server: its counters, the usual time until its answers, and for how long nothing has ended
   although something waits for an answer: streams of events, and WebSockets, do not. */
const past = new Map();
const OUT = { unavail: "out of rotation after failures", unhealthy: "fails its health checks", down: "set down", draining: "draining", checking: "is being checked" };
const peersOf = (upstreams, engine, seconds, columns) => upstreams.flatMap((u) => u.peers.map((values) => {
  const p = Object.fromEntries(columns.map((name, i) => [name, values[i]]));
  const key = engine + " " + u.name + " " + p.server;
  /* A failed exchange counts as answered with 502 or 504. */
  const now = { ended: p.done, fails: Math.max(p.failed, p.errors_5xx), active: p.active - p.answering, count: p.headers, sum: p.header_us, waits: 0 };
  /* Counters that went down were reset: nothing has changed. */
  const known = past.get(key), last = known && known.ended <= now.ended && known.fails <= now.fails ? known : { ...now, usual: known && known.usual };
  const ended = now.ended - last.ended, bad = now.fails - last.fails, n = now.count - last.count, us = n > 0 ? (now.sum - last.sum) / n : 0;
  if (!ended && known && now.active > 0 && last.active > 0) now.waits = (last.waits || 0) + seconds;
  let trouble = "";
  if (now.waits >= .9 && last.usual < 5e5) trouble = "has stopped answering, " + now.active + " wait";
  else if (bad > 0 && bad >= ended * .01) trouble = "fails " + share(bad, Math.max(bad, ended));
  else if (us >= 1e6 || us >= 2e5 && us >= 5 * last.usual) trouble = "takes " + (us / 1e6).toFixed(1) + " s";
  now.usual = trouble || !us ? last.usual : last.usual === undefined ? us : (last.usual * 7 + us) / 8;
  past.set(key, now);
  const level = p.state === "unavail" || p.state === "unhealthy" || /^fails|^has/.test(trouble) ? 2 : trouble || p.state === "checking" || p.state === "draining" ? 1 : 0;
  const why = trouble || (OUT[p.state] || "") + (p.out_since && p.state !== "up" ? " since " + clock(p.out_since) : "");
  return { ...p, key, engine, group: u.name, at: u.at, trouble, why, level, bad: now.fails, badNow: bad, doneNow: Math.max(bad, ended), rate: ended / seconds };
}));
const grouped = (now) => {
  const groups = [];
  for (const [engine, all, kind] of [["http", now.answer.upstreams, "upstream"], ["stream", now.answer.stream_upstreams, "stream_upstream"]]) for (const u of all) {
    const peers = now.peers.filter((p) => p.engine === engine && p.group === u.name).sort((a, b) => b.level - a.level || b.rate - a.rate || (a.key < b.key ? -1 : 1));
    const out = peers.filter((p) => p.level === 2).length;
    groups.push({ key: engine + " " + u.name, engine, name: u.name, zone: u.zone, peers, series: seriesOf(kind, u.name), level: out ? 2 : peers.some((p) => p.level) ? 1 : 0, out });
  }
  return groups.sort((a, b) => b.level - a.level || b.out / b.peers.length - a.out / a.peers.length || (a.key < b.key ? -1 : 1));
};

/* The sentence on top: what is wrong, the worst first. */
const judge = (now) => {
  const said = [], say = (level, text) => said.push([level, text]);
  for (const g of now.upstreams) {
    const out = g.peers.filter((p) => !["up", "draining", "checking"].includes(p.state));
    if (!out.length) continue;
    const since = out.map((p) => p.out_since).filter(Boolean).sort((a, b) => a - b)[0];
    say(out.length === g.peers.length ? 2 : 1, out.length + " of " + g.peers.length + " servers of " + g.name + " down" + (since ? " since " + clock(since) : "") + (out.length === 1 ? " (" + out[0].server + ")" : ""));
  }
  for (const s of H.rows.values()) {
    if (s.kind !== "server" || s.first + s.done.length !== H.first + H.steps.length) continue;
    const n = s.done.at(-1), bad = s.errors_5xx.at(-1);
    if (bad > 0 && bad / n >= .01) say(bad / n > .2 ? 2 : 1, "5xx " + share(bad, n) + " of " + s.name);
  }
  for (const p of now.peers) if (p.trouble) say(1, p.server + " of " + p.group + " " + p.trouble);
  for (const [name, z] of Object.entries(now.slabs || {})) if (z.pages.free === 0 || z.pages.used / (z.pages.used + z.pages.free) > .95) say(1, "zone " + name + " is full");
  for (const c of now.certs || []) if (c.not_after && c.days < 14) say(c.days < 2 ? 2 : 1, "certificate " + c.name + (c.days < 0 ? " expired" : " expires in " + c.days + " days"));
  const fleet = now.now.shared_state;
  if (fleet && fleet.state === "away") say(1, "shared state is away for " + Math.round(fleet.state_ms / 1000) + " s: " + fleet.reason);
  const still = now.workers.filter((w) => w.silent_ms > STILL);
  for (const w of still) say(2, "worker " + w.pid + " hangs for " + (w.silent_ms / 1000).toFixed(1) + " s");
  if (now.took > 1500 && !still.length) say(1, "the server took " + (now.took / 1000).toFixed(1) + " s to answer");
  const stall = Math.max(0, ...now.workers.map((w) => w.longest_turn_ms)), was = before ? Math.max(0, ...before.workers.map((w) => w.longest_turn_ms)) : stall;
  if (stall > was && stall > 200) say(1, "an event loop stood still for " + stall + " ms");
  if (before && now.now.log_lines_dropped > before.now.log_lines_dropped) say(1, "log lines are dropped");
  said.sort((a, b) => b[0] - a[0]);
  const level = said.length ? said[0][0] : 0;
  const text = said.length ? said.slice(0, 4).map((s) => s[1]).join("; ") + (said.length > 4 ? "; and " + (said.length - 4) + " more" : "") + "." : "All is well.";
  tell(["good", "warn", "bad"][level], (level === 2 ? "Trouble: " : level ? "Look: " : "") + text);
};
let heard = "";
const tell = (name, text) => {
  if (heard === name + text) return;
  heard = name + text;
  $("now").className = name;
  $("now").textContent = text;
};

const tabs = new Map();
for (const [name, v] of Object.entries(V)) {
  const a = el("a", v.title), n = el("span", "", "n");
  a.href = "#" + name;
  n.hidden = true;
  a.append(n);
  $("tabs").append(a);
  tabs.set(name, { a, n });
}
const badge = (name, count, level, what) => {
  const { n } = tabs.get(name);
  n.hidden = !count;
  set(n, count ? String(count) : "");
  cls(n, "n " + level);
  n.title = what;
};
const draw = () => {
  if (!latest) return;
  if (!shown[view]) {
    const box = el("div");
    shown[view] = { box, draw: V[view].make(box) };
  }
  const { box, draw } = shown[view];
  if (box.parentNode !== $("views")) $("views").replaceChildren(box);
  const held = box.contains(document.activeElement) ? document.activeElement : null;
  draw(latest);
  /* A card or a server that moves loses the focus. */
  if (held && held.isConnected && document.activeElement !== held) held.focus({ preventScroll: true });
  badge("upstreams", latest.peers.filter((p) => p.level === 2).length, "bad", "servers in trouble");
  badge("tls", (latest.certs || []).filter((c) => c.not_after && c.days < 14).length, "warn", "certificates that end soon");
  badge("workers", latest.workers.filter((w) => w.silent_ms > STILL).length, "bad", "workers that hang");
  if (P.draw) P.draw(latest);
};
/* The rest between two rounds of what is not asked for in each. */
const kept = {};
const ask = async () => {
  const parts = new Set((V[view].parts || "").split(",").filter(Boolean));
  if (round++ % 5 === 0) for (const name of ["slabs", "certificates"]) parts.add(name);
  const wanted = {}, slow = Math.max(V[view].slow || 0, P.draw && P.slow || 0);
  if (H.token) wanted.since = H.token;
  if (P.row !== null) { wanted.rows = P.row; wanted.heat = P.row; }
  if (parts.size) wanted.parts = [...parts].join(",");
  if (slow) wanted.slow = slow;
  const at = Date.now(), answer = await overview(wanted);
  take(answer, true);
  for (const name of [...parts, "slow_requests"]) if (answer[name]) kept[name] = answer[name];
  const seconds = latest ? Math.max(.2, (answer.server.time - latest.answer.server.time) / 1000) : EVERY / 1000;
  const now = { ...kept, answer, now: answer.now, took: Date.now() - at };
  now.certs = kept.certificates && Object.entries(kept.certificates).map(([name, c]) => ({ ...c, key: name, name, days: c.expired ? -1 : c.days_left ?? 1e6 }));
  const were = new Map(latest ? latest.workers.map((w) => [w.pid, w.requests]) : []);
  now.workers = answer.now.workers.map((w) => ({ ...w, key: String(w.pid), rate: Math.max(0, w.requests - (were.get(w.pid) ?? w.requests)) / seconds }));
  now.peers = [...peersOf(answer.upstreams, "http", seconds, answer.server.peer_columns), ...peersOf(answer.stream_upstreams, "stream", seconds, answer.server.peer_columns)];
  now.rate = latest ? Math.max(0, answer.now.requests - latest.now.requests) / seconds : 0;
  now.upstreams = grouped(now);
  before = latest;
  latest = now;
  good = Date.now();
  const start = performance.now();
  const s = answer.server;
  set($("about"), s.build.replace("-", " ") + " at " + location.host + ", configuration " + s.generation + ", loaded " + new Date(s.loaded).toLocaleString());
  draw();
  judge(now);
  performance.clearMeasures("update");
  performance.measure("update", { start });
};
/* One at a time: each answer begins where the one before ended. */
let turn = Promise.resolve();
const update = () => turn = turn.catch(() => {}).then(ask);
const fresh = () => {
  const old = Date.now() - good;
  document.body.classList.toggle("stale", old > 6000);
  set($("fresh"), !good ? "connecting" : old > 6000 ? "no answer for " + ago(good) : "live");
};
const run = async () => {
  const at = Date.now();
  const late = setTimeout(() => tell("bad", "Trouble: no answer from the server since " + new Date(at).toLocaleTimeString() + "."), 3000);
  try {
    if (!busy && (!document.hidden || !good)) { busy = true; await update(); }
  } catch (e) {
    tell("bad", "Stale: no answer from the server " + (good ? "since " + new Date(good).toLocaleTimeString() : "yet") + " (" + e.message + ").");
  }
  busy = false;
  clearTimeout(late);
  fresh();
  setTimeout(run, EVERY);
};
/* The fragment names a view, or the panel and what is in it. */
const fragment = () => {
  const hash = location.hash.slice(1);
  /* An address that was cut may end within an escape. */
  const [kind, ...args] = hash.split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return { hash, kind, args };
};
const isPanel = () => { const { kind, args } = fragment(); return Object.hasOwn(panels, kind) && args.length > 0; };
const route = () => {
  const { hash, kind, args } = fragment();
  if (isPanel()) openPanel(hash, kind, args);
  else {
    closePanel();
    view = Object.hasOwn(V, kind) ? kind : "overview";
  }
  for (const [name, { a }] of tabs) if (name === view) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
  draw();
};
addEventListener("hashchange", () => { route(); if (!isPanel()) update().catch(() => {}); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("resize", draw);
$("api").href = here + "/api/9/";
$("skip").addEventListener("click", () => $("main").focus());
setInterval(fresh, 1000);
route();
run();
