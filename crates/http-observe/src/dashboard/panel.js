/* The panel from the side: a server, a virtual server or location, a slow request, events. Its address can be sent. */
const P = { hash: "", draw: null, row: null };
const facts = (list) => {
  const dl = el("dl");
  for (const [name, value, mono] of list) if (value !== undefined && value !== "") dl.append(el("dt", name), put(el("dd"), mono ? el("code", value) : value));
  return dl;
};
const graphs = (body, what) => {
  const perS = (v) => perSecond(v) + "/s";
  const one = (title, c, keys) => { body.append(el("h3", title)); if (keys) body.append(keys); body.append(c.el); return c; };
  const done = one("Requests and errors per second", chart({ name: () => "Requests of " + what, text: perS }), legend(["", "requests"], ["w", "4xx"], ["r", "5xx or failed"]));
  const late = one("99 % answered within", chart({ name: () => "p99 of " + what, text: ms }));
  const hot = one("Times of requests", heat(() => "Times of requests of " + what));
  const active = one("In progress", chart({ name: () => "Requests in progress at " + what, text: short, whole: true }));
  const wait = el("p", "The history of this one begins with the next step.", "note");
  body.append(wait);
  return (s) => {
    wait.hidden = !!s;
    if (!s) return;
    done.draw([["a", "requests", valuesOf(s, "done", true)], ["w", "4xx", valuesOf(s, "errors_4xx", true)], ["r", "5xx or failed", errorsOf(s)]].map(([cls, name, values]) => ({ cls, name, values })));
    late.draw([{ cls: "a", name: "", values: timesOf(s) }]);
    hot.draw(s);
    active.draw([{ cls: "a", name: "", values: valuesOf(s, "active") }]);
  };
};
const load = async (row) => { P.row = row; take(await overview({ kinds: "none", rows: row, heat: row }), false); };
const explain = (r) => "weir explain '" + ("http:" + "//" + r.host + r.uri).replaceAll("'", "'\\''") + "'" + (r.method === "GET" ? "" : " -X " + r.method);
const change = async (b, peer, what) => {
  /* A disabled button would lose the focus. */
  if (b.ariaDisabled === "true") return;
  b.ariaDisabled = "true";
  try {
    const answer = await fetch(here + "/api/9/" + peer.engine + "/upstreams/" + encodeURIComponent(peer.group) + "/servers/" + peer.id, { method: "PATCH", headers: { "Content-Type": "application/json" }, body: JSON.stringify(what) });
    if (!answer.ok) alert((await answer.json()).error.text);
    await update();
  } finally { b.ariaDisabled = null; }
};
const panels = {
  server: (body, [engine, group, server]) => {
    const find = () => (latest ? latest.peers : []).find((p) => p.engine === engine && p.group === group && p.server === server);
    const top = el("div"), actions = el("div", undefined, "actions");
    let peer = find(), drawn = null;
    body.append(top);
    if (WRITE) {
      const drain = button("", () => change(drain, peer, { drain: peer.state !== "draining" })), down = button("", () => change(down, peer, { down: peer.state !== "down" }));
      drain.id = "drain";
      down.id = "down";
      actions.append(drain, down);
      body.append(actions);
    }
    const draw = graphs(body, server), slow = put(el("div"), el("h3", "Its slow and failed requests")), wide = el("div", undefined, "wide");
    body.append(slow);
    wide.tabIndex = 0;
    wide.setAttribute("role", "region");
    wide.setAttribute("aria-label", "Slow requests of " + server);
    slow.append(wide);
    return { title: server, slow: 1024, draw: (now) => {
      peer = find();
      if (!peer) { top.replaceChildren(el("p", "This server is not in the upstream " + group + " any more.", "sub")); return; }
      const text = JSON.stringify([peer.state, peer.trouble, peer.out_since, peer.active, peer.checks_failed, Math.round(peer.rate)]);
      if (text !== drawn) {
        drawn = text;
        top.replaceChildren(facts([["State", put(el("span", undefined, ["", "warn", "bad"][peer.level] || STATE[peer.state] || ""), peer.state + (peer.trouble ? ", " + peer.trouble : ""))], ["Since", peer.out_since ? new Date(peer.out_since).toLocaleString() : ""], ["Upstream", group], ["Configuration", peer.at, true],
          ["Now", perSecond(peer.rate) + " requests/s, " + peer.active + " in progress"], ["So far", short(peer.done) + " requests, " + share(peer.bad, peer.done) + " errors, " + peer.failed + " failed attempts"], ["Health checks", peer.checks ? (peer.checks_failed || 0) + " of " + peer.checks + " failed" : ""]]));
        if (WRITE) {
          const [drain, down] = actions.children;
          set(drain, peer.state === "draining" ? "Undrain" : "Drain");
          set(down, peer.state === "down" ? "Up" : "Down");
          drain.hidden = engine !== "http";
        }
      }
      if (peer.row !== null && P.row !== peer.row) load(peer.row).then(() => draw(H.rows.get(P.row))).catch(() => {});
      draw(P.row === null ? undefined : H.rows.get(P.row));
      if (now.slow_requests) table(wide, "slow of " + P.hash, slowColumns.filter((c) => !["Client", "Servers"].includes(c.name)), now.slow_requests.filter((r) => r.tries.some((t) => t.server === server)).map((r) => ({ ...r, key: String(r.id) })), { down: true });
    } };
  },
  zone: (body, [kind, name]) => {
    const draw = graphs(body, name);
    return { title: name, draw: () => {
      if (P.row === null) overview({ kinds: kind }).then((a) => {
        const s = a.series.find((s) => s.name === name);
        if (s) return load(s.row);
      }).then(() => draw(H.rows.get(P.row))).catch(() => {});
      draw(P.row === null ? undefined : H.rows.get(P.row));
    } };
  },
  slow: (body, [id]) => {
    const show = el("div");
    body.append(show);
    let done = false;
    return { title: "Request " + id, slow: 1024, draw: (now) => {
      const r = !done && (now.slow_requests || []).find((r) => String(r.id) === id);
      if (!r) { if (!done && now.slow_requests) set(show, "This request is no longer kept: the server keeps the latest 1,024."); return; }
      done = true;
      const bar = el("div", undefined, "phases"), names = [["head", "request received"], ["access", "access, limits"], ["content", "until the response"], ["send", "sending"]], t = r.times_us;
      bar.setAttribute("role", "img");
      bar.setAttribute("aria-label", names.map(([key, text]) => text + " " + ms(t[key])).join(", "));
      for (const [key] of names) { const i = el("i"); i.style.width = 100 * t[key] / Math.max(1, t.total) + "%"; bar.append(i); }
      show.replaceChildren(facts([["Request", r.method + " " + r.host + r.uri], ["Ended", new Date(r.time).toLocaleString()], ["Status", String(r.status) + (r.failed ? ", failed" : ", slow")], ["Client", r.client], ["Took", ms(t.total)]]), bar,
        facts(names.map(([key, text]) => [text, ms(t[key])])), el("h3", "Its path"), facts([["Server", r.server], ["Location", r.location], ["Configuration", r.at, true], ["Cache", r.cache]]));
      const line = el("code", explain(r), "block");
      show.append(el("p", "The whole path, with each directive and its line:", "sub"), line, put(el("p", undefined, "actions"), copy(button("Copy command"), () => line.textContent)));
      if (r.tries.length) {
        const list = el("ul", undefined, "servers"), peers = latest ? latest.peers : [];
        for (const one of r.tries) {
          const li = el("li"), a = el("a"), p = peers.find((p) => p.server === one.server);
          if (p) a.href = peerLink(p);
          a.append(el("span", undefined, "dot" + (one.status >= 500 || !one.status ? " bad" : "")), el("span", one.server, "addr"), el("span", String(one.status || "–"), "v"), el("span", one.header_ms === undefined ? "–" : ms(one.header_ms * 1000), "v"), el("span", one.response_ms === undefined ? "–" : ms(one.response_ms * 1000), "v"));
          li.append(a);
          list.append(li);
        }
        show.append(el("h3", "Servers: status, header, whole response"), list);
      }
    } };
  },
  event: (body, [id]) => {
    const list = el("ul", undefined, "servers");
    body.append(el("p", "The events of the last hour, the latest first.", "sub"), list);
    let drawn = "";
    return { title: "Events", draw: () => {
      const text = String(H.events.at(-1)?.id);
      if (drawn === text) return;
      drawn = text;
      list.replaceChildren(...H.events.toReversed().map((e) => {
        const li = el("li"), a = el("a"), [group, address] = e.subject.split(" "), p = e.kind === "peer" && latest ? latest.peers.find((p) => p.group === group && p.server === address) : null;
        if (p) a.href = peerLink(p);
        if (String(e.id) === id) a.setAttribute("aria-current", "true");
        a.append(el("span", undefined, "dot " + ({ bad: "bad", warn: "warn", info: "dim" }[e.severity] || "")), el("span", e.text, "addr"), el("span", clock(e.time), "v"));
        li.append(a);
        return li;
      }));
    } };
  },
};
const openPanel = (hash, kind, args) => {
  P.hash = hash;
  P.row = null;
  const body = $("panel-body");
  body.replaceChildren();
  Object.assign(P, { slow: 0 }, panels[kind](body, args));
  set($("panel-title"), P.title);
  if (!$("panel").open) $("panel").showModal();
  $("panel-title").focus();
  if (latest) P.draw(latest);
  if (P.slow) update().catch(() => {});
};
const closePanel = () => {
  P.draw = null;
  P.hash = "";
  P.row = null;
  P.slow = 0;
  if ($("panel").open) $("panel").close();
};
$("panel-close").addEventListener("click", () => $("panel").close());
$("panel").addEventListener("click", (e) => { if (e.target === $("panel")) $("panel").close(); });
$("panel").addEventListener("close", () => { if (P.hash) location.hash = view; });
copy($("panel-link"), () => location.href);
