/* The views behind the tabs, and the panel from the side. */
const STATE = { up: "good", draining: "warn", checking: "warn" };
const link = (...parts) => "#" + parts.map(encodeURIComponent).join("/");
const peerLink = (p) => link("server", p.engine, p.group, p.server);
const tile = (title, options) => {
  const card = el("section", undefined, "card"), big = el("p", undefined, "big"), sub = el("p", "", "sub"), c = chart(options);
  const h = el("h2", title, "sub");
  card.append(h, big, sub, c.el);
  return { card, draw: (value, unit, note, lines, level) => {
    const text = value + (unit ? "\u00a0" + unit : "");
    if (big.dataset.text !== text) { big.dataset.text = text; big.replaceChildren(value, unit ? el("small", unit) : ""); }
    cls(big, "big" + (level ? " " + level : ""));
    set(sub, note);
    c.draw(lines);
  } };
};
const legend = (...all) => {
  const p = el("p", undefined, "legend");
  for (const [name, text] of all) { const s = el("span"); s.append(el("i", undefined, name), text); p.append(s); }
  return p;
};

/* A card of an upstream, with its servers. */
const upstreamCard = () => {
  const card = el("section", undefined, "card"), head = el("div", undefined, "head"), h = el("h2"), sub = el("span", "", "sub"), list = el("ul", undefined, "servers");
  const c = chart({ small: true, name: () => "Requests of " + h.textContent, text: (v) => perSecond(v) + " per second" }), note = el("p", "", "sub"), more = el("p", undefined, "more sub");
  head.append(h, sub);
  card.append(head, note, c.el, list, more);
  const items = new Map();
  const item = () => {
    const li = el("li"), a = el("a"), dot = el("span"), addr = el("span", "", "addr"), rate = el("span", "", "v"), bad = el("span"), late = el("span", "", "v"), why = el("span"), meter = el("span", undefined, "meter"), bar = el("i");
    dot.ariaHidden = meter.ariaHidden = "true";
    meter.append(bar);
    a.append(dot, addr, rate, bad, late, why, meter);
    li.append(a);
    return { li, a, dot, addr, rate, bad, late, why, bar };
  };
  return { card, draw: (u) => {
    cls(card, "card" + (u.level === 2 ? " bad" : u.level ? " warn" : ""));
    set(h, u.name);
    const up = u.peers.filter((p) => STATE[p.state] === "good").length;
    set(sub, up + " of " + u.peers.length + " up");
    const s = u.series;
    set(note, perSecond(u.peers.reduce((sum, p) => sum + p.rate, 0)) + (u.engine === "http" ? " requests/s" : " sessions/s") + (s ? ", " + share(Math.max(recent(s, "failed", 6), recent(s, "errors_5xx", 6)), recent(s, "done", 6)) + " errors, p99 " + ms(p99(s.p99_us.at(-1))) : "") + (u.zone ? "" : ", no zone"));
    c.el.hidden = !s;
    if (s) c.draw([{ cls: "a", name: "requests", values: valuesOf(s, "done", true) }, { cls: "r", name: "errors", values: errorsOf(s) }]);
    const shown = u.whole ? u.peers : u.peers.slice(0, 12), most = Math.max(1e-9, ...u.peers.map((p) => p.rate));
    set(more, u.peers.length > shown.length ? "and " + (u.peers.length - shown.length) + " more, in Upstreams" : "");
    const seen = new Set();
    let after = null;
    for (const p of shown) {
      seen.add(p.key);
      let i = items.get(p.key);
      if (!i) { i = item(); items.set(p.key, i); }
      i.a.href = peerLink(p);
      const level = p.level === 2 ? "bad" : p.level ? "warn" : p.state === "down" ? "dim" : "";
      cls(i.dot, "dot " + level);
      set(i.addr, p.server + (p.name ? " (" + p.name + ")" : "") + (p.backup ? ", backup" : ""));
      set(i.rate, perSecond(p.rate) + "/s");
      set(i.bad, share(p.badNow, p.doneNow));
      cls(i.bad, "v" + (p.badNow ? " bad" : ""));
      set(i.late, ms(p99(p.p99_us)));
      set(i.why, p.why);
      cls(i.why, "why " + (level === "dim" ? "sub" : level));
      i.why.hidden = !p.why;
      i.bar.style.width = 100 * p.rate / most + "%";
      cls(i.bar, level === "bad" ? "bad" : "");
      const next = after ? after.nextSibling : list.firstChild;
      if (next !== i.li) list.insertBefore(i.li, next);
      after = i.li;
    }
    for (const [key, i] of items) if (!seen.has(key)) { i.li.remove(); items.delete(key); }
  } };
};

const V = {};
const total = () => seriesOf("total", "");
V.overview = { title: "Overview", make: (box) => {
  const tiles = el("div", undefined, "grid tiles"), perS = (v) => perSecond(v) + "/s";
  const requests = tile("Requests per second", { name: () => "Requests per second", text: perS });
  const errors = tile("Errors", { name: () => "Errors per second", text: perS });
  const late = tile("99 % answered within", { name: () => "p99 of the times of requests", text: ms });
  const connections = tile("Open connections", { name: () => "Open connections", text: short, whole: true });
  tiles.append(requests.card, errors.card, late.card, connections.card);
  const map = el("section", undefined, "card"), hot = heat(() => "Times of requests"), marks = lane(), list = el("p", "", "note");
  const head = put(el("div", undefined, "head"), el("h2", "Times of requests, and events"), el("span", "more colour: more requests", "sub"));
  map.append(head, hot.el, marks.el, list);
  const cards = el("div", undefined, "grid cards");
  cards.id = "cards";
  const wrap = el("div", undefined, "grid");
  wrap.append(map);
  box.append(tiles, wrap, cards);
  const known = new Map(), none = put(el("section", undefined, "card"), el("h2", "No upstreams"), el("p", "This configuration forwards no requests: there are no servers to watch.", "sub"));
  return (now) => {
    const s = total(), none4 = "4xx", none5 = "5xx";
    const lines = (list, name, rate) => s ? [{ cls: name, name: "", values: valuesOf(s, list, rate) }] : [];
    requests.draw(perSecond(now.rate), "per s", short(now.now.requests) + " so far, " + now.now.current + " in progress", lines("done", "a", true));
    const n = s ? recent(s, "done", 6) : 0, bad = s ? recent(s, "errors_5xx", 6) : 0, four = s ? recent(s, "errors_4xx", 6) : 0;
    errors.draw(n ? share(bad, n) : "0 %", "5xx", (n ? share(four, n) : "0 %") + " 4xx, in the last minute", s ? [{ cls: "w", name: none4, values: valuesOf(s, "errors_4xx", true) }, { cls: "r", name: none5, values: valuesOf(s, "errors_5xx", true) }] : [], bad ? bad >= n * .01 ? "bad" : "warn" : "");
    const values = s ? timesOf(s) : [], last = s ? p99(s.p99_us.slice(-6).findLast((us) => us)) : undefined, most = Math.max(0, ...values);
    const [number, unit] = ms(last).replace("> ", ">").split(" ");
    late.draw(number, unit || "", most ? "at most " + ms(most) + " in the last " + spanText() : "no requests yet", s ? [{ cls: "a", name: "", values }] : []);
    connections.draw(short(now.now.active + now.now.idle), "", now.now.idle + " of them idle", lines("active", "a"));
    if (s) hot.draw(s);
    marks.draw();
    const e = H.events.findLast((e) => e.kind !== "start");
    set(list, (e ? "Latest event, " + clock(e.time) + ": " + e.text + ". " : "No events. ") + (H.steps.length < KEEP ? "The history began at " + hour(H.steps.length ? H.steps[0].end : H.time) + " and grows for an hour." : ""));
    if (!now.upstreams.length) { if (!none.isConnected) cards.replaceChildren(none); return; }
    none.remove();
    let after = null;
    const seen = new Set();
    for (const u of now.upstreams.slice(0, 60)) {
      seen.add(u.key);
      let card = known.get(u.key);
      if (!card) known.set(u.key, card = upstreamCard());
      card.draw(u);
      const next = after ? after.nextSibling : cards.firstChild;
      if (next !== card.card) cards.insertBefore(card.card, next);
      after = card.card;
    }
    for (const [key, card] of known) if (!seen.has(key)) { card.card.remove(); known.delete(key); }
  };
} };
const section = (box, title, note) => {
  const card = el("section", undefined, "card"), wide = el("div", undefined, "wide"), h = el("h2", title), wrap = el("div", undefined, "grid");
  wide.tabIndex = 0;
  wide.setAttribute("role", "region");
  wide.setAttribute("aria-label", title);
  put(card, h, note ? el("p", note, "sub") : null, wide);
  wrap.append(card);
  box.append(wrap);
  return { card, wide };
};
const filterOf = (s) => {
  const input = el("input"), label = el("label", "Filter ");
  input.type = "search";
  input.autocomplete = "off";
  label.append(input);
  s.card.insertBefore(put(el("p", undefined, "filter"), label), s.wide);
  return input;
};
V.upstreams = { title: "Upstreams", make: (box) => {
  const s = section(box, "Upstream servers"), filter = filterOf(s);
  const columns = [
    words("Upstream", (p) => p.group), words("Server", (p) => p.name ? p.name + " (" + p.server + ")" : p.server, null, peerLink),
    { name: "State", text: true, sort: (p) => 2 - p.level + p.state + p.key, cls: (p) => ["", "warn", "bad"][p.level] || STATE[p.state] || "", show: (p) => p.state + (p.trouble ? ", " + p.trouble : p.out_since ? " since " + clock(p.out_since) : "") },
    column("Active", (p) => p.active), column("per second", (p) => p.rate, perSecond), column("Requests", (p) => p.done, short),
    column("Errors", (p) => p.done ? p.bad / p.done : 0, (v, p) => share(p.bad, p.done), (p) => p.badNow ? "bad" : ""),
    column("p99", (p) => p99(p.p99_us) ?? -1, (v, p) => ms(p99(p.p99_us))), column("Sent", (p) => p.sent, short), column("Received", (p) => p.received, short),
    words("Checks", (p) => p.checks ? (p.checks_failed || 0) + " of " + p.checks + " failed" : "–"),
  ];
  return (now) => table(s.wide, "upstreams", columns, now.peers, { filter, by: 2 });
} };
V.servers = { title: "Servers and locations", parts: "server_zones,location_zones,stream_server_zones", make: (box) => {
  const s = section(box, "Servers and locations"), filter = filterOf(s), last = new Map();
  const columns = [
    words("Kind", (z) => z.kind), words("Name", (z) => z.name, () => "long", (z) => z.kind === "stream" ? "" : link("zone", z.kind, z.name)), column("Requests", (z) => z.total, short), column("per second", (z) => z.rate, perSecond),
    column("Active", (z) => z.z.processing ?? 0), column("4xx", (z) => z.r["4xx"], (v, z) => share(v, z.r.total)), column("5xx", (z) => z.r["5xx"], (v, z) => share(v, z.r.total), (z) => z.r["5xx"] ? "warn" : ""),
    column("Discarded", (z) => z.z.discarded, short), column("Received", (z) => z.z.received, short), column("Sent", (z) => z.z.sent, short),
  ];
  return (now) => {
    if (!now.server_zones) return;
    const rows = [["server", now.server_zones], ["location", now.location_zones], ["stream", now.stream_server_zones]].flatMap(([kind, zones]) => Object.entries(zones).map(([name, z]) => {
      const key = kind + " " + name, totalNow = z.requests ?? z.connections, was = last.get(key), at = Date.now();
      const rate = was ? Math.max(0, totalNow - was.n) * 1000 / Math.max(1, at - was.at) : 0;
      last.set(key, { n: totalNow, at });
      return { key, kind, name, z, r: z.responses || z.sessions, total: totalNow, rate };
    }));
    table(s.wide, "zones", columns, rows, { filter });
  };
} };
V.caches = { title: "Caches", parts: "caches,status", make: (box) => {
  const s = section(box, "Caches");
  const columns = [words("Cache", (c) => c.key), column("Hits", (c) => c.all ? c.hits / c.all : 0, (v, c) => share(c.hits, c.all)), column("Requests", (c) => c.all, short), column("Size", (c) => c.c.size, (v) => short(v) + "B"),
    column("Full", (c) => c.c.max_size ? c.c.size / c.c.max_size : 0, (v, c) => share(c.c.size, c.c.max_size)), words("Files", (c) => c.c.cold ? "loading" : "known"), column("Errors", (c) => c.faults, short, (c) => c.faults ? "bad" : "")];
  return (now) => now.caches && table(s.wide, "caches", columns, Object.entries(now.caches).map(([key, c]) => {
    const n = (...names) => names.reduce((sum, name) => sum + c[name].responses, 0);
    return { key, c, all: n("hit", "stale", "updating", "revalidated", "miss", "expired", "bypass"), hits: n("hit", "stale", "updating", "revalidated"), faults: ((now.status.cache || { zones: [] }).zones.find((z) => z.zone === key) || {}).faults || 0 };
  }));
} };
V.limits = { title: "Limits", parts: "limit_reqs,limit_conns,stream_limit_conns,slabs", make: (box) => {
  const s = section(box, "Limits"), z = section(box, "Shared memory zones"), full = (z) => z.used / (z.used + z.free || 1);
  let fleet;
  return (now) => {
    const f = now.now.shared_state;
    if (f) {
      fleet ||= section(box, "Shared with other servers");
      table(fleet.wide, "fleet", [words("State", (f) => f.state, (f) => f.state === "joined" ? "good" : "warn"), column("Lag", (f) => f.lag_ms ?? 0, (v) => v + " ms"), column("Servers", (f) => f.peers), words("Hosts", (f) => f.hosts, () => "long"), words("Zones", (f) => f.zones.map((z) => z.name).join(", "), () => "long"),
        column("Sent", (f) => f.sent, short), column("Received", (f) => f.received, short), column("Dropped", (f) => f.dropped, short, (f) => f.dropped ? "warn" : ""), column("Falls back", (f) => f.fallbacks, short, (f) => f.fallbacks ? "warn" : ""), column("Waits", (f) => f.waits, short)], [{ key: "fleet", ...f }]);
    }
    if (!now.limit_reqs) return;
    table(s.wide, "limits", [words("Kind", (l) => l.kind), words("Zone", (l) => l.name), column("Passed", (l) => l.l.passed, short), column("Delayed", (l) => l.l.delayed || 0, short),
      column("Refused", (l) => l.l.rejected, short, (l) => l.l.rejected ? "warn" : ""), column("In dry runs", (l) => l.l.rejected_dry_run, short)],
    [["requests", now.limit_reqs], ["connections", now.limit_conns], ["stream", now.stream_limit_conns]].flatMap(([kind, all]) => Object.entries(all).map(([name, l]) => ({ key: kind + " " + name, kind, name, l }))));
    table(z.wide, "slabs", [words("Zone", (z) => z.key), column("Full", full, (v) => share(v, 1), (z) => full(z) > .95 ? "bad" : ""), column("Pages used", (z) => z.used), column("Free", (z) => z.free)], Object.entries(now.slabs).map(([key, z]) => ({ key, ...z.pages })));
  };
} };
V.tls = { title: "TLS", parts: "certificates", make: (box) => {
  const s = section(box, "Certificates");
  return (now) => now.certs && table(s.wide, "certs", [words("Certificate", (c) => c.name, () => "long"), words("Servers", (c) => c.servers, () => "long"), words("Ends", (c) => c.not_after || "not issued yet"),
    column("Days left", (c) => c.days, (d, c) => c.not_after ? String(d) : "–", (c) => c.days < 14 ? "bad" : c.days < 30 ? "warn" : "good"), words("Order", (c) => c.state || "–")], now.certs);
} };
const STILL = 1500;
V.workers = { title: "Workers", make: (box) => {
  const s = section(box, "Workers", "A worker that hangs serves nothing: its loop does not turn.");
  const columns = [{ ...column("Process", (w) => w.pid), text: true }, column("per second", (w) => w.rate, perSecond), column("In progress", (w) => w.current), column("Connections", (w) => w.active + w.idle), column("Idle", (w) => w.idle), column("Requests", (w) => w.requests, short),
    column("Longest turn", (w) => w.longest_turn_ms, (v) => v + " ms", (w) => w.longest_turn_ms > 200 ? "warn" : ""), words("Loop", (w) => w.silent_ms > STILL ? "hangs" : "turns", (w) => w.silent_ms > STILL ? "bad" : "good")];
  return (now) => table(s.wide, "workers", columns, now.workers);
} };
const slowColumns = [
  { name: "Ended", text: true, sort: (r) => r.id, show: (r) => clock(r.time), link: (r) => link("slow", r.id) }, words("Why", (r) => r.failed ? "failed" : "slow", (r) => r.failed ? "bad" : "warn"), column("Status", (r) => r.status), column("Took", (r) => r.times_us.total, ms),
  words("Request", (r) => r.method + " " + r.host + r.uri, () => "long"), words("Client", (r) => r.client), words("Location", (r) => r.location || r.server, () => "long"),
  words("Servers", (r) => r.tries.map((t) => t.server + " " + (t.status || "–")).join(", ") || "–", () => "long"),
];
V.slow = { title: "Slow requests", slow: 200, make: (box) => {
  const s = section(box, "Slow or failed requests"), filter = filterOf(s);
  return (now) => now.slow_requests && table(s.wide, "slow", slowColumns, now.slow_requests.map((r) => ({ ...r, key: [String(r.id).padStart(12, "0"), r.host, r.uri, r.location, ...r.tries.map((t) => t.server)].join(" ") })), { down: true, filter });
} };
