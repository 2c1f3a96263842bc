"use strict";
/* Helpers: elements, texts of numbers, requests. */
const here = location.pathname.replace(/\/+$/, "");
const WRITE = /*WRITE*/false;
const EVERY = 2000;
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
const el = (name, text, cls) => {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (cls) e.className = cls;
  return e;
};
const svg = (name, attributes) => {
  const e = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) e.setAttribute(key, value);
  return e;
};
const put = (parent, ...children) => { parent.append(...children.filter((c) => c !== null && c !== undefined && c !== "")); return parent; };
/* Changes a text only where it differs, so that a selection lasts. */
const set = (e, text) => { if (e.textContent !== text) e.textContent = text; };
const cls = (e, name) => { if (e.className !== name) e.className = name; };
const UNITS = ["", "k", "M", "G", "T", "P"];
const short = (n) => {
  let i = 0;
  while (n >= 1000 && i < 5) { n /= 1000; i++; }
  return (i && n < 10 ? n.toFixed(1) : Math.round(n)) + UNITS[i];
};
const perSecond = (n) => n > 0 && n < 10 ? String(+(n < 1 ? n.toPrecision(2) : n.toFixed(1))) : short(n);
const share = (n, of) => of ? (100 * n / of).toFixed(n && n / of < 0.1 ? 1 : 0) + " %" : "–";
const ms = (us) => us === 0 ? "0" : us === null ? "> 60 s" : us === undefined ? "–" : us < 1000 ? Math.round(us) + " µs" : us < 1e6 ? +(us / 1000).toPrecision(3) + " ms" : +(us / 1e6).toPrecision(3) + " s";
/* The history writes 0 for no times, and the greatest number for one beyond the last bound. */
const BEYOND = 4294967295;
const p99 = (us) => us === undefined || us === 0 ? undefined : us === BEYOND ? null : us;
const clock = (time) => time ? new Date(time).toLocaleTimeString() : "";
const hour = (time) => new Date(time).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
const ago = (at) => {
  const s = Math.max(0, Math.round((Date.now() - at) / 1000));
  return s < 90 ? s + " s" : s < 5400 ? Math.round(s / 60) + " min" : s < 172800 ? Math.round(s / 3600) + " h" : Math.round(s / 86400) + " days";
};
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
const copy = (button, text) => {
  button.addEventListener("click", async () => {
    const was = button.textContent;
    try { await navigator.clipboard.writeText(text()); set(button, "Copied"); } catch { set(button, "No clipboard"); }
    setTimeout(() => set(button, was), 1500);
  });
  return button;
};
const button = (text, act) => {
  const b = el("button", text);
  b.type = "button";
  if (act) b.addEventListener("click", act);
  return b;
};

/* Of several requests, each on a connection of its own, one reaches a worker that turns: one that hangs keeps the
   connections that it has accepted. The first requests make room soon; the last ones have the time that a far or
   busy server needs. */
const ATTEMPTS = 6;
const first = (path) => new Promise((done, fail) => {
  const stops = [];
  let left = ATTEMPTS;
  const end = () => { left = 0; for (const stop of stops) stop.abort(); };
  const more = () => {
    if (!left || stops.length === ATTEMPTS) return;
    const stop = new AbortController();
    setTimeout(() => stop.abort(), stops.length < ATTEMPTS / 2 ? 1500 : 15000);
    stops.push(stop);
    fetch(here + "/api/" + path, { cache: "no-store", signal: stop.signal }).then((answer) => {
      if (!answer.ok) throw new Error(answer.status);
      return answer.json();
    }).then((value) => { done(value); end(); }).catch((e) => { if (left && !--left) fail(e); });
    setTimeout(more, 500);
  };
  more();
});
const get = (path) => first("9/" + path);
const overview = (wanted) => first("weir/v1/overview?" + new URLSearchParams(wanted));

/* Tables: rows stay, cells change, so that the focus and a selection last. */
const tables = {};
const ROWS = 200;
const table = (box, id, columns, rows, { filter, down, by } = {}) => {
  let t = tables[id];
  if (!t) {
    t = tables[id] = { by: by || 0, down: !!down, rows: new Map() };
    t.el = el("table");
    const tr = el("tr");
    columns.forEach((c, i) => {
      const th = el("th", undefined, c.text ? "text" : "");
      th.scope = "col";
      th.append(button(c.name, () => { t.down = t.by === i ? !t.down : !c.text; t.by = i; t.draw(); }));
      tr.append(th);
    });
    const head = el("thead");
    head.append(tr);
    t.heads = [...tr.children];
    t.body = el("tbody");
    t.el.append(head, t.body);
    /* Layout takes most of the time of an update: a long table shows its first rows. */
    t.more = el("p", undefined, "more");
    t.count = el("span");
    t.more.append(t.count, " ", button("Show all", () => { t.whole = true; t.draw(); }));
    if (filter) filter.addEventListener("input", () => t.draw());
  }
  t.draw = () => {
    const wanted = filter ? filter.value.toLowerCase() : "";
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
        row = { tr: el("tr"), cells: columns.map(() => el("td")), texts: [], classes: [] };
        row.tr.append(...row.cells);
        t.rows.set(r.key, row);
      }
      row.data = r;
      columns.forEach((c, i) => {
        const td = row.cells[i];
        const name = ((c.text ? "text " : "") + (c.cls ? c.cls(r) : "")).trim();
        if (row.classes[i] !== name) td.className = row.classes[i] = name;
        const text = c.show(r);
        if (row.texts[i] === text) return;
        row.texts[i] = text;
        const link = c.link && c.link(r);
        if (!link) { td.textContent = text; return; }
        const a = td.querySelector("a") || td.appendChild(el("a"));
        a.textContent = text;
        a.href = link;
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
    if (!box.querySelector(":scope > .none")) box.replaceChildren(el("p", "None.", "none sub"));
    return;
  }
  if (t.el.parentNode !== box) box.replaceChildren(t.el, t.more);
  t.draw();
};
const column = (name, of, show, cls) => ({ name, sort: of, show: (r) => show ? show(of(r), r) : String(of(r)), cls });
const words = (name, of, cls, link) => ({ name, text: true, sort: of, show: (r) => String(of(r)), cls, link });
