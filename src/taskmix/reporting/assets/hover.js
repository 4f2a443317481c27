// What a pointer, a finger or the keyboard does on a chart: read values, zoom by dragging.

const rowsOf = (plot, at) => {
  const rows = [];
  for (const one of plot.shown()) {
    if (one.quiet) continue;
    const xs = plot.xsOf(one), place = nearest(xs, at);
    if (place === null) continue;
    const value = plot.yText(one.y[place]);
    const spread = one.low && known(one.low[place]) ? ` (${plot.yText(one.low[place])} to ${plot.yText(one.high[place])})` : "";
    rows.push({ one, x: xs[place], text: `${value}${spread}`, value: one.stack ? one.stack[place] : one.y[place] });
  }
  return rows;
};

function nearest(xs, at) {
  if (!xs.length) return null;
  const place = placeOf(xs, at);
  if (place === 0) return 0;
  if (place >= xs.length) return xs.length - 1;
  return at - xs[place - 1] < xs[place] - at ? place - 1 : place;
}

function nearestDot(plot, pixel) {
  let best = null, least = 400;
  for (const one of plot.shown()) {
    if (one.kind !== "dots") continue;
    const xs = plot.xsOf(one);
    for (let i = 0; i < xs.length; i++) {
      const dx = plot.toX(xs[i]) - pixel.x, dy = plot.toY(one.y[i]) - pixel.y, distance = dx * dx + dy * dy;
      if (distance < least) { least = distance; best = { one, i }; }
    }
  }
  return best;
}

// Values at one place of the axis, or those of the nearest dot.
function showAt(plot, at, pixel, aloud) {
  const { tip, frame } = plot, lines = [];
  if (plot.spec.hover === "dot") {
    const found = nearestDot(plot, pixel);
    if (!found) { hideTip(plot); return; }
    const { one, i } = found, xs = plot.xsOf(one);
    at = xs[i];
    lines.push({ name: one.names ? one.names[i] : one.name, text: "" });
    lines.push({ name: plot.current().x.label, text: number(xs[i]) }, { name: plot.current().y.label, text: plot.yText(one.y[i]) });
    plot.pointer.setAttribute("d", `M${plot.toX(at)} ${plot.toY(one.y[i])}m-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0`);
  } else {
    const rows = rowsOf(plot, at);
    if (!rows.length) { hideTip(plot); return; }
    at = rows.reduce((best, row) => (Math.abs(row.x - at) < Math.abs(best - at) ? row.x : best), rows[0].x);
    const { x } = plot.current();
    lines.push({ name: x.names ? x.names[at] ?? number(at) : `${x.label} ${x.percent ? `${number(100 * at)} %` : number(at, 6)}`, text: "" });
    for (const row of rows) lines.push({ name: row.one.name, text: row.text, series: row.one });
    const reach = (plot.high - plot.low) * 0.012;
    for (const mark of plot.current().marks ?? [])
      if (Math.abs(mark.x - at) <= reach && !plot.hidden.has(plot.markName(mark.kind)) && lines.length < 16)
        lines.push({ name: mark.label, text: "" });
    plot.pointer.setAttribute("d", `M${plot.toX(at)} ${frame.top}V${frame.bottom}`);
  }
  plot.cursor = at;
  tip.replaceChildren(...lines.map(({ name, text, series }, place) => element("div", { class: place ? "" : "head" },
    series ? plot.swatch(series) : null, element("span", {}, name), element("b", {}, text))));
  tip.hidden = false;
  const x = plot.toX(at), wide = tip.offsetWidth;
  tip.style.left = `${x + 14 + wide < plot.width ? x + 14 : Math.max(0, x - wide - 14)}px`;
  tip.style.top = `${Math.max(0, Math.min((pixel?.y ?? frame.top) - tip.offsetHeight / 2, frame.bottom - tip.offsetHeight))}px`;
  if (aloud) plot.said.textContent = lines.map(({ name, text }) => `${name} ${text}`).join(", ");
}

function hideTip(plot) {
  plot.tip.hidden = true;
  plot.cursor = undefined;
  plot.pointer.setAttribute("d", "");
}

function listen(plot, svg) {
  const { frame } = plot;
  const pixelOf = (event) => {
    const box = svg.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const valueOf = (x) => plot.low + ((x - frame.left) / (frame.right - frame.left)) * (plot.high - plot.low);
  let start = null, waiting = false;
  svg.addEventListener("pointermove", (event) => {
    const pixel = pixelOf(event);
    if (start !== null && plot.spec.zoom !== false) {
      const [from, to] = [Math.min(start, pixel.x), Math.max(start, pixel.x)];
      plot.brush.hidden = false;
      plot.brush.removeAttribute("hidden");
      plot.brush.setAttribute("x", from);
      plot.brush.setAttribute("width", to - from);
    }
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; if (svg.isConnected) showAt(plot, valueOf(pixel.x), pixel); });
  });
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = pixelOf(event).x;
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointerup", (event) => {
    const end = pixelOf(event).x;
    plot.brush.setAttribute("hidden", "");
    if (start !== null && plot.spec.zoom !== false && Math.abs(end - start) > 12)
      plot.setRange([valueOf(Math.min(start, end)), valueOf(Math.max(start, end))]);
    start = null;
  });
  svg.addEventListener("pointercancel", () => { start = null; plot.brush.setAttribute("hidden", ""); });
  svg.addEventListener("pointerleave", () => { if (start === null) hideTip(plot); });
  svg.addEventListener("dblclick", () => plot.setRange(null));
  svg.addEventListener("keydown", (event) => {
    const first = plot.shown()[0], keys = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") { hideTip(plot); plot.setRange(null); }
    if (!(event.key in keys) || !first) return;
    event.preventDefault();
    const xs = plot.xsOf(first), step = Math.max(1, Math.round(xs.length / 200)) * keys[event.key];
    const here = plot.cursor === undefined ? (step > 0 ? -1 : xs.length) : nearest(xs, plot.cursor);
    const there = Math.max(0, Math.min(xs.length - 1, here + step));
    showAt(plot, xs[there], { x: plot.toX(xs[there]), y: plot.toY(first.y[there] ?? plot.low) }, true);
  });
  svg.addEventListener("blur", () => hideTip(plot));
}

// The numbers of a chart for those who would rather read them.
function numbersOf(plot, host) {
  const series = plot.current().series, xs = plot.xsOf(series[0]);
  const step = Math.max(1, Math.ceil(xs.length / 100)), aligned = series.filter((one) => plot.xsOf(one).length === xs.length);
  const head = element("tr", {}, ...[plot.current().x.label, ...aligned.map((one) => one.name)].map((name) => element("th", { scope: "col" }, name)));
  const body = [];
  for (let i = 0; i < xs.length; i += step)
    body.push(element("tr", {}, element("th", { scope: "row" }, plot.current().x.names?.[xs[i]] ?? number(xs[i], 6)), ...aligned.map((one) => element("td", {}, plot.yText(one.y[i])))));
  host.replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
}
