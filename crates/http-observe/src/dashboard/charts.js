/* The history: steps by number, and series whose lists begin at a step of their own. */
const KEEP = 360, HOUR = 3600e3;
const H = { token: "", steps: [], first: 0, rows: new Map(), events: [], bounds: [], time: 0 };
const LISTS = ["done", "errors_4xx", "errors_5xx", "failed", "active", "state", "p99_us"];
const take = (answer, merge) => {
  const { steps, series } = answer, at = steps.first, n = steps.ends.length;
  if (merge) {
    if (answer.server.complete) { H.rows.clear(); H.steps = []; H.events = []; P.row = null; }
    if (H.first + H.steps.length !== at) { H.first = at; H.steps = []; }
    steps.ends.forEach((end, i) => H.steps.push({ end, length: steps.lengths[i] }));
    if (H.steps.length > KEEP) { H.first += H.steps.length - KEEP; H.steps.splice(0, H.steps.length - KEEP); }
    const known = new Set(H.events.map((e) => e.id));
    H.events.push(...answer.events.filter((e) => !known.has(e.id)));
    H.events = H.events.slice(-512);
    H.token = answer.server.token;
    H.bounds = steps.heat_bounds_us;
    H.time = answer.server.time;
    stretch();
  }
  for (const s of series) {
    const old = H.rows.get(s.row), lists = s.heat ? [...LISTS, "heat"] : LISTS;
    const follows = merge && old && old.name === s.name && old.first + old.done.length === at && (!s.heat || old.heat);
    if (!follows) { H.rows.set(s.row, { ...s, first: at }); continue; }
    for (const list of lists) old[list].push(...s[list]);
    const over = old.done.length - KEEP;
    if (over > 0) {
      for (const list of LISTS) old[list].splice(0, over);
      if (old.heat) old.heat.splice(0, over * (H.bounds.length + 1));
      old.first += over;
    }
  }
};
const seriesOf = (kind, name) => { for (const s of H.rows.values()) if (s.kind === kind && s.name === name) return s; };
/* The values of a list at the known steps: null where the series was not there. */
const valuesOf = (s, list, rate) => H.steps.map((step, i) => {
  const at = H.first + i - s.first;
  if (at < 0 || at >= s.done.length || !s.state[at]) return null;
  const v = s[list][at];
  return rate ? v * 1000 / Math.max(1, step.length) : v;
});
/* Errors of servers: a failed attempt has no status, or counts as answered with 502 or 504. */
const errorsOf = (s) => {
  const failed = valuesOf(s, "failed", true);
  return valuesOf(s, "errors_5xx", true).map((v, i) => /peer|upstream/.test(s.kind) && v !== null ? Math.max(v, failed[i]) : v);
};
/* Times for charts: a step without any has no value. */
const timesOf = (s) => valuesOf(s, "p99_us").map((us) => us === BEYOND ? 6e7 : us || null);
const recent = (s, list, n) => { let sum = 0; for (let i = Math.max(0, s.done.length - n); i < s.done.length; i++) sum += s[list][i]; return sum; };

/* The horizontal position of a time, as a share of the time up to now that charts show: an hour, and less while the
   history is young. */
const SPANS = [5, 10, 15, 20, 30, 45, 60];
let span = HOUR;
const stretch = () => {
  const age = H.steps.length ? (H.time - H.steps[0].end + H.steps[0].length) / 60e3 : 0;
  span = (SPANS.find((minutes) => minutes >= age) || 60) * 60e3;
};
const across = (time) => Math.max(0, 1 - (H.time - time) / span);
const spanText = () => span === HOUR ? "hour" : span / 60e3 + " minutes";
const nice = (top) => {
  if (!(top > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(top));
  return [1, 2, 3, 4, 5, 6, 8, 10].find((n) => n * unit >= top * .999) * unit;
};
const frame = (small) => {
  const box = el("div", undefined, small ? "chart small" : "chart"), plot = el("div", undefined, "plot");
  box.append(plot);
  const marks = small ? [] : [["x l", 0], ["x", 50], ["x r", 100]].map(([name, at]) => {
    const x = el("span", "", name);
    x.style.left = at + "%";
    x.ariaHidden = "true";
    plot.append(x);
    return x;
  });
  const axis = () => marks.forEach((x, i) => set(x, i === 2 ? "now" : hour(H.time - span * (1 - i / 2))));
  return { box, plot, axis };
};
/* A line of time on a chart, under the pointer or moved by the arrow keys, with the values there. */
const cursor = (box, plot, describe) => {
  const bar = el("div", undefined, "cursor"), tip = el("div", undefined, "tip");
  bar.hidden = tip.hidden = true;
  plot.append(bar, tip);
  let at = -1;
  const show = (i) => {
    at = i;
    const step = H.steps[i];
    bar.hidden = tip.hidden = !step;
    if (!step) return;
    const x = across(step.end - step.length / 2);
    bar.style.left = tip.style.left = 100 * x + "%";
    tip.className = "tip" + (x < .2 ? " l" : x > .8 ? " r" : "");
    tip.textContent = clock(step.end) + "  " + describe(i);
  };
  plot.addEventListener("pointermove", (e) => {
    const r = plot.getBoundingClientRect(), time = H.time - span * (1 - (e.clientX - r.left) / r.width);
    show(H.steps.findIndex((s) => s.end >= time && s.end - s.length <= time));
  });
  plot.addEventListener("pointerleave", () => show(-1));
  box.addEventListener("blur", () => show(-1));
  box.addEventListener("keydown", (e) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (!by) return;
    e.preventDefault();
    show(Math.max(0, Math.min(H.steps.length - 1, (at < 0 ? H.steps.length : at) + by)));
  });
};
/* A chart of lines over the hour. Each line: its class, its name, and its values. */
const chart = ({ small, tall, name, text, whole }) => {
  const { box, plot, axis } = frame(small);
  if (tall) box.classList.add("tall");
  const image = svg("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", "aria-hidden": "true" });
  plot.prepend(image);
  box.setAttribute("role", "img");
  let lines = [];
  if (!small) {
    box.tabIndex = 0;
    cursor(box, plot, (i) => lines.map((l) => (lines.length > 1 ? l.name + " " : "") + (l.values[i] === null ? "–" : text(l.values[i]))).join(", "));
  }
  const scale = small ? [] : ["y top", "y", "y low"].map((name, i) => {
    const y = el("span", "", name);
    y.style.top = 50 * i + "%";
    y.ariaHidden = "true";
    plot.append(y);
    image.append(svg("line", { class: "grid-line", x1: 0, x2: 1000, y1: 1 + 49 * i, y2: 1 + 49 * i }));
    return y;
  });
  const paths = [];
  const draw = (now) => {
    lines = now;
    const all = lines.flatMap((l) => l.values.filter((v) => v !== null)), most = Math.max(0, ...all), top = whole ? Math.max(2, nice(most)) : nice(most);
    axis();
    lines.forEach((l, n) => {
      const p = paths[n] || (paths[n] = [image.appendChild(svg("path", { class: "f " + l.cls })), image.appendChild(svg("path", { class: "l " + l.cls }))]);
      let fill = "", line = "", from = null;
      const close = () => { if (from !== null) fill += "V99.500H" + from + "Z"; from = null; };
      H.steps.forEach((step, i) => {
        const v = l.values[i];
        if (v === null) { close(); return; }
        const x0 = (1000 * across(step.end - step.length)).toFixed(1), x1 = (1000 * across(step.end)).toFixed(1), y = (99 - 97 * Math.min(1, v / top)).toFixed(1);
        if (from === null) { from = x0; fill += "M" + x0 + " 99.500V" + y; line += "M" + x0 + " " + y; }
        fill += "L" + x1 + " " + y;
        line += "L" + x1 + " " + y;
      });
      close();
      p[0].setAttribute("d", fill);
      p[1].setAttribute("d", line);
    });
    scale.forEach((y, i) => set(y, i === 2 ? "0" : text(top * (1 - i / 2))));
    const last = (l) => l.values.findLast((v) => v !== null);
    box.setAttribute("aria-label", name() + (all.length ? ". Over the last " + spanText() + ": " + lines.map((l) => (l.name ? l.name + " " : "") + "now " + text(last(l) ?? 0) + ", at most " + text(Math.max(0, ...l.values))).join("; ") : ": no values yet"));
  };
  return { el: box, draw };
};
/* How many requests took how long, over the hour: darker is more. */
const heat = (name) => {
  const { box, plot, axis } = frame(false);
  box.classList.add("tall");
  const canvas = el("canvas");
  plot.prepend(canvas);
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", name() + ": no requests yet");
  box.tabIndex = 0;
  let s = null, labels = [];
  const rows = () => H.bounds.length + 1;
  const at = (i, b) => { const k = H.first + i - s.first; return k < 0 || !s.heat ? 0 : s.heat[k * rows() + b] || 0; };
  cursor(box, plot, (i) => {
    if (!s) return "";
    const said = [];
    for (let b = rows() - 1; b >= 0 && said.length < 3; b--) if (at(i, b)) said.push(short(at(i, b)) + (b < H.bounds.length ? " ≤ " + ms(H.bounds[b]) : " > " + ms(H.bounds.at(-1))));
    return said.join(", ") || "no requests";
  });
  const draw = (of) => {
    s = of || s;
    axis();
    const n = rows();
    if (!labels.length && n > 1) labels = H.bounds.map((us, b) => {
      if (b % 2 === 0) return null;
      const y = el("span", ms(us), "y");
      y.style.top = 100 * (1 - (b + 1) / n) + "%";
      y.ariaHidden = "true";
      return plot.appendChild(y);
    });
    const w = canvas.width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio)), h = canvas.height = Math.max(1, Math.round(canvas.clientHeight * devicePixelRatio));
    const context = canvas.getContext("2d"), color = getComputedStyle(document.documentElement).getPropertyValue("--heat");
    if (!s || !s.heat) return;
    let most = 1, slowest = -1;
    const sums = Array(n).fill(0);
    H.steps.forEach((step, i) => { for (let b = 0; b < n; b++) { const v = at(i, b); most = Math.max(most, v); sums[b] += v; if (v) slowest = Math.max(slowest, b); } });
    H.steps.forEach((step, i) => {
      const x0 = Math.floor(w * across(step.end - step.length)), x1 = Math.ceil(w * across(step.end));
      for (let b = 0; b < n; b++) {
        const v = at(i, b);
        if (!v) continue;
        /* A single slow request has to be seen next to thousands of fast ones. */
        context.fillStyle = "rgba(" + color + "," + (.18 + .82 * Math.log1p(v) / Math.log1p(most)).toFixed(3) + ")";
        const y1 = Math.round(h * (1 - b / n)), y0 = Math.round(h * (1 - (b + 1) / n));
        context.fillRect(x0, y0 + (y1 - y0 > 6 ? 1 : 0), Math.max(1, x1 - x0), y1 - y0 - (y1 - y0 > 6 ? 1 : 0));
      }
    });
    const all = sums.reduce((a, b) => a + b, 0);
    const label = (b) => b < H.bounds.length ? "up to " + ms(H.bounds[b]) : "more than " + ms(H.bounds.at(-1));
    box.setAttribute("aria-label", name() + (all ? ". Over the last " + spanText() + ": " + sums.map((v, b) => v ? share(v, all) + " took " + label(b) : "").filter(Boolean).join(", ") : ": no requests yet"));
  };
  return { el: box, draw };
};
/* The events of the hour, on the same axis. */
const lane = () => {
  const box = el("div", undefined, "lane"), marks = new Map();
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", "Events of the last hour");
  const draw = () => {
    const shown = H.events.filter((e) => e.time > H.time - span);
    const seen = new Set(shown.map((e) => e.id));
    for (const [id, mark] of marks) if (!seen.has(id)) { mark.remove(); marks.delete(id); }
    for (const e of shown) {
      let mark = marks.get(e.id);
      if (!mark) {
        mark = button("", () => { location.hash = "event/" + e.id; });
        mark.className = e.severity;
        mark.title = mark.ariaLabel = clock(e.time) + " " + e.text;
        marks.set(e.id, mark);
        box.append(mark);
      }
      mark.style.left = Math.min(100, 100 * across(e.time)) + "%";
    }
  };
  return { el: box, draw };
};
