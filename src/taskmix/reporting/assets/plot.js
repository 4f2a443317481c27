// A chart of lines, dots or stacked areas over one axis: hover, zoom, series on and off.
// Everything that comes from a run is set as text or as a number, never as markup.

const SVG = "http://www.w3.org/2000/svg";
const drawing = (name, attributes = {}, ...children) =>
  furnish(document.createElementNS(SVG, name), attributes, children);
const element = (name, attributes = {}, ...children) =>
  furnish(document.createElement(name), attributes, children);

function furnish(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes))
    if (value !== undefined && value !== null) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const number = (value, digits = 4) =>
  !known(value) ? "–" : Number.isInteger(value) ? value.toLocaleString("en")
    : Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });

function ticks(low, high, count) {
  const raw = (high - low) / Math.max(count, 1);
  const unit = 10 ** Math.floor(Math.log10(raw));
  let step = [1, 2, 5, 10].find((factor) => factor * unit >= raw * 0.999) * unit;
  // One number alone says nothing of the scale.
  if (Math.floor(high / step) - Math.ceil(low / step) < 1) step /= 2;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-6; k++)
    found.push(Number((k * step).toPrecision(12)));
  return found;
}

// Pixels for a label of the lower axis.
const roomOf = (width) => (width < 520 ? 58 : 90);

// The first place in an ascending list whose value is at least this one.
function placeOf(list, value) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

// Pixels of a line: of more points than columns of the screen, the extremes of each column.
function linePath(xs, ys, from, to, toX, toY) {
  let path = "", column = -1, low, high, last, pen = false;
  const flush = () => {
    if (low === undefined) return;
    path += low === high ? `L${column} ${low}` : `L${column} ${low}L${column} ${high}L${column} ${last}`;
    low = undefined;
  };
  for (let i = from; i < to; i++) {
    if (!known(ys[i])) { flush(); pen = false; continue; }
    const x = Math.round(2 * toX(xs[i])) / 2, y = Math.round(10 * toY(ys[i])) / 10;
    if (!pen) { flush(); path += `M${x} ${y}`; pen = true; column = x; low = high = last = y; continue; }
    if (x !== column) { flush(); column = x; low = high = last = y; }
    else { low = Math.min(low, y); high = Math.max(high, y); last = y; }
  }
  flush();
  return path;
}

// Dots are segments without length and with round ends: one path for all, one dot per pixel.
function dotPath(xs, ys, from, to, toX, toY) {
  const taken = new Set();
  let path = "";
  for (let i = from; i < to; i++) {
    if (!known(ys[i]) || !known(xs[i])) continue;
    const x = Math.round(toX(xs[i])), y = Math.round(toY(ys[i]));
    const key = x * 4096 + y;
    if (taken.has(key)) continue;
    taken.add(key);
    path += `M${x} ${y}h0`;
  }
  return path;
}

function bandPath(xs, low, high, from, to, toX, toY) {
  const there = [], back = [], step = Math.max(1, Math.floor((to - from) / 1200));
  for (let i = from; i < to; i += step) {
    if (!known(low[i]) || !known(high[i])) continue;
    there.push(`${toX(xs[i]).toFixed(1)} ${toY(high[i]).toFixed(1)}`);
    back.push(`${toX(xs[i]).toFixed(1)} ${toY(low[i]).toFixed(1)}`);
  }
  return there.length > 1 ? `M${there.join("L")}L${back.reverse().join("L")}Z` : "";
}

const MARKS = {
  birth: { word: "birth", plural: "births", at: "bottom", glyph: "m-4.5 0l4.5 -8l4.5 8z" },
  alarm: { word: "alarm", plural: "alarms", at: "top", glyph: "m0 0l4.5 5l-4.5 5l-4.5 -5z" },
  removal: { word: "removal", plural: "removals", at: "bottom", glyph: "m-4 -8l8 8m0 -8l-8 8" },
};
const linked = {};

class Plot {
  constructor(figure, spec) {
    Object.assign(this, { figure, spec, hidden: new Set(), range: null, view: 0 });
    for (const one of this.views().flatMap((view) => view.series)) if (one.off) this.hidden.add(one.name);
    this.host = figure.querySelector(".plot");
    this.controls = element("div", { class: "controls" });
    this.host.before(this.controls);
    this.tip = element("div", { class: "tip", hidden: "" });
    this.said = element("output", { class: "unseen", "aria-live": "polite" });
    if (spec.group) (linked[spec.group] ??= []).push(this);
    this.buildControls();
    this.draw();
    new ResizeObserver(() => { if (this.width !== this.available()) this.draw(); }).observe(this.host);
  }

  views() { return this.spec.views ?? [this.spec]; }
  current() { return { ...this.spec, ...this.views()[this.view] }; }
  available() { return Math.max(240, Math.floor(this.forced ?? this.host.clientWidth)); }
  xsOf(series) { return typeof series.x === "number" ? this.spec.xs[series.x] : series.x; }
  shown() { return this.current().series.filter((one) => !this.hidden.has(one.name)); }

  buildControls() {
    this.controls.replaceChildren();
    const { spec } = this, current = this.current();
    if (this.views().length > 1) {
      const group = element("div", { class: "choice", role: "group", "aria-label": spec.choice ?? "shown" });
      this.views().forEach((view, place) => {
        const button = element("button", { type: "button", "aria-pressed": place === this.view }, view.name);
        button.onclick = () => { this.view = place; this.buildControls(); this.draw(); };
        group.append(button);
      });
      this.controls.append(group);
    }
    const legend = element("div", { class: "legend", role: "group", "aria-label": "lines on and off" });
    const entry = (name, swatch, title) => {
      const on = !this.hidden.has(name);
      const button = element("button", { type: "button", "aria-pressed": on, title }, swatch, name);
      button.onclick = () => {
        if (on) this.hidden.add(name); else this.hidden.delete(name);
        this.buildControls(); this.draw();
        [...this.controls.querySelectorAll(".legend button")].find((one) => one.textContent === name)?.focus();
      };
      legend.append(button);
    };
    for (const one of current.series) entry(one.name, this.swatch(one), one.told);
    if (current.series.length > 6) {
      const every = current.series.map((one) => one.name);
      for (const [text, act] of [["all", () => this.hidden.clear()], ["none", () => every.forEach((name) => this.hidden.add(name))]]) {
        const button = element("button", { type: "button", class: "every" }, text);
        button.onclick = () => { act(); this.buildControls(); this.draw(); };
        legend.append(button);
      }
    }
    for (const kind of this.markKinds()) entry(this.markName(kind), this.markSwatch(kind));
    if (!spec.mini && (legend.childElementCount > 1 || spec.legend)) this.controls.append(legend);
    if (spec.zoom === false) return;
    const zoom = element("div", { class: "zoom", role: "group", "aria-label": "zoom" });
    for (const [text, label, act] of [["+", "zoom in", () => this.scaleBy(0.5)],
      ["−", "zoom out", () => this.scaleBy(2)], ["whole", "show the whole", () => this.setRange(null)]]) {
      const button = element("button", { type: "button", "aria-label": label }, text);
      button.onclick = act;
      zoom.append(button);
    }
    this.controls.append(zoom);
  }

  swatch(series) {
    const style = `--own: var(--${series.colour ?? "ink"})`;
    const line = drawing("svg", { width: 22, height: 12, class: "swatch", style, "aria-hidden": "true" });
    if (series.kind === "area") line.append(drawing("rect", { width: 14, height: 12, x: 4, rx: 2, class: "area" }));
    else if (series.kind === "dots") line.append(drawing("path", { d: "M11 6h0", class: "dots", "stroke-width": 7 }));
    else line.append(drawing("path", { d: "M1 6H21", class: "line", "stroke-dasharray": series.dash, "stroke-width": series.width ?? 2 }));
    return line;
  }

  markKinds() {
    const marks = this.current().marks ?? [];
    return Object.keys(MARKS).filter((kind) => marks.some((mark) => mark.kind === kind));
  }
  markName(kind) {
    const count = this.current().marks.filter((mark) => mark.kind === kind).length;
    return `${number(count)} ${count === 1 ? MARKS[kind].word : MARKS[kind].plural}`;
  }
  markSwatch(kind) {
    return drawing("svg", { width: 14, height: 12, class: `swatch mark-${kind}`, "aria-hidden": "true" },
      drawing("path", { d: `M7 ${MARKS[kind].at === "top" ? 1 : 10}${MARKS[kind].glyph}`, class: "glyph" }));
  }

  whole() {
    const { x } = this.current();
    if (known(x.min) && known(x.max)) return [x.min, x.max];
    let low = Infinity, high = -Infinity;
    for (const one of this.current().series)
      for (const value of this.xsOf(one)) { if (value < low) low = value; if (value > high) high = value; }
    const pad = (x.pad ?? 0) * (high - low);
    return low < high ? [low - pad, high + pad] : known(low) && low !== Infinity ? [low - 1, low + 1] : [0, 1];
  }

  setRange(range, tell = true) {
    const [low, high] = this.whole();
    this.range = range && [Math.max(low, range[0]), Math.min(high, range[1])];
    if (this.range && (this.range[1] - this.range[0] >= high - low || this.range[1] <= this.range[0])) this.range = null;
    this.draw();
    if (tell && this.spec.group) for (const other of linked[this.spec.group]) if (other !== this) other.setRange(range, false);
  }
  scaleBy(factor) {
    const [low, high] = this.range ?? this.whole(), middle = this.cursor ?? (low + high) / 2;
    this.setRange([middle - ((middle - low) * factor), middle + ((high - middle) * factor)]);
  }

  bounds(series, low, high) {
    const { y } = this.current();
    let bottom = Infinity, top = -Infinity;
    const see = (value) => { if (known(value)) { if (value < bottom) bottom = value; if (value > top) top = value; } };
    for (const one of series) {
      const xs = this.xsOf(one), sorted = one.kind !== "dots" || this.spec.sorted;
      const from = sorted ? Math.max(0, placeOf(xs, low) - 1) : 0, to = sorted ? Math.min(xs.length, placeOf(xs, high) + 1) : xs.length;
      const values = one.stack ?? one.y;
      for (let i = from; i < to; i++) { see(values[i]); if (one.low) { see(one.low[i]); see(one.high[i]); } }
    }
    see(y.line);
    if (bottom > top) [bottom, top] = [0, 1];
    const pad = (top - bottom) * 0.06 || Math.abs(top) * 0.1 || 1;
    const fitted = [!y.fit && bottom >= 0 && bottom < 0.6 * top ? 0 : bottom - pad, top + pad];
    const limit = this.range ? undefined : y.max;
    return [known(y.min) ? y.min : fitted[0], known(limit) ? limit : known(y.cap) ? Math.min(fitted[1], y.cap) : fitted[1]];
  }

  stack(series) {
    const stacked = series.filter((one) => one.kind === "area");
    const sum = stacked.length ? new Float64Array(stacked[0].y.length) : null;
    for (const one of stacked) {
      one.base = Array.from(sum);
      one.y.forEach((value, i) => { sum[i] += value ?? 0; });
      one.stack = Array.from(sum);
    }
  }

  draw() {
    const current = this.current(), series = this.shown();
    this.stack(series);
    const width = (this.width = this.available()), height = this.spec.height ?? (width < 520 ? 270 : 340);
    const [low, high] = this.range ?? this.whole(), [bottom, top] = this.bounds(series, low, high);
    const yTicks = ticks(bottom, top, height / 55);
    const percent = current.y.percent;
    const yText = (value) => (percent ? `${number(100 * value)} %` : number(value));
    const left = 14 + 6.8 * Math.max(...yTicks.map((tick) => yText(tick).length), 1);
    const frame = { left, right: width - 22, top: current.bands ? 40 : 24, bottom: height - 40 };
    const toX = (value) => frame.left + ((value - low) / (high - low)) * (frame.right - frame.left);
    const toY = (value) => Math.max(-5e3, Math.min(5e3, frame.bottom - ((value - bottom) / (top - bottom)) * (frame.bottom - frame.top)));
    Object.assign(this, { frame, toX, toY, low, high, yText });
    const svg = drawing("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: this.spec.mini ? undefined : 0, "aria-label": this.figure.dataset.label });
    const clip = `clip-${(Plot.count = (Plot.count ?? 0) + 1)}`;
    svg.append(drawing("clipPath", { id: clip }, drawing("rect", { x: frame.left, y: frame.top - 3, width: frame.right - frame.left, height: frame.bottom - frame.top + 6 })));
    this.drawBands(svg, current, frame);
    this.drawAxes(svg, current, yTicks);
    const inside = drawing("g", { "clip-path": `url(#${clip})` });
    // Of many bands nobody can tell whose is whose.
    this.banded = series.filter((one) => one.low).length <= 6;
    for (const one of series) this.drawSeries(inside, one);
    if (current.diagonal) inside.append(drawing("path", { class: "reference", d: `M${toX(current.x.min)} ${toY(current.x.min)}L${toX(current.x.max)} ${toY(current.x.max)}` }));
    if (known(current.y.line)) inside.append(drawing("path", { class: "reference", d: `M${frame.left} ${toY(current.y.line)}H${frame.right}` }));
    svg.append(inside);
    this.drawMarks(svg, frame);
    this.pointer = drawing("path", { class: "pointer" });
    this.brush = drawing("rect", { class: "brush", y: frame.top, height: frame.bottom - frame.top, hidden: "" });
    svg.append(this.brush, this.pointer);
    this.host.replaceChildren(svg, this.tip, this.said);
    this.tip.hidden = true;
    if (!this.spec.mini) listen(this, svg);
  }

  drawBands(svg, current, frame) {
    (current.bands ?? []).forEach((band, place) => {
      const from = Math.max(this.toX(band.from), frame.left), to = Math.min(this.toX(band.to), frame.right);
      if (to <= from) return;
      const active = band.active ?? place % 2 === 0;
      svg.append(drawing("rect", { class: active ? "phase" : "phase other", x: from, y: frame.top, width: to - from, height: frame.bottom - frame.top }));
      if (band.active) svg.append(drawing("rect", { class: "active", x: from, y: frame.top - 4, width: to - from, height: 3 }));
      const room = Math.floor((to - from - 8) / 6.6);
      if (room < 3) return;
      const text = band.label.length > room ? `${band.label.slice(0, room - 1)}…` : band.label;
      svg.append(drawing("text", { class: "phase-name", x: (from + to) / 2, y: frame.top - 7, "text-anchor": "middle" }, drawing("title", {}, band.label), text));
    });
  }

  drawAxes(svg, current, yTicks) {
    const { frame } = this;
    for (const tick of yTicks) {
      const y = Math.round(this.toY(tick)) + 0.5;
      svg.append(drawing("path", { class: "grid", d: `M${frame.left} ${y}H${frame.right}` }),
        drawing("text", { class: "tick", x: frame.left - 7, y: y + 4, "text-anchor": "end" }, this.yText(tick)));
    }
    const labels = ticks(this.low, this.high, (frame.right - frame.left) / roomOf(this.width));
    for (const tick of labels) {
      if (current.x.integer && !Number.isInteger(tick)) continue;
      const text = current.x.names ? current.x.names[tick] ?? "" : current.x.percent ? `${number(100 * tick)} %` : number(tick, 6);
      svg.append(drawing("path", { class: "axis", d: `M${Math.round(this.toX(tick)) + 0.5} ${frame.bottom}v4` }),
        drawing("text", { class: "tick", x: this.toX(tick), y: frame.bottom + 17, "text-anchor": "middle" }, text.length > 14 ? `${text.slice(0, 13)}…` : text));
    }
    svg.append(drawing("path", { class: "axis", d: `M${frame.left} ${frame.bottom + 0.5}H${frame.right}` }),
      drawing("text", { class: "label", x: 2, y: 14 }, current.y.label),
      drawing("text", { class: "label", x: (frame.left + frame.right) / 2, y: frame.bottom + 35, "text-anchor": "middle" }, current.x.label));
  }

  drawSeries(group, one) {
    const xs = this.xsOf(one), style = `--own: var(--${one.colour ?? "ink"})`;
    const sorted = one.kind !== "dots" || this.spec.sorted;
    const from = sorted ? Math.max(0, placeOf(xs, this.low) - 1) : 0, to = sorted ? Math.min(xs.length, placeOf(xs, this.high) + 2) : xs.length;
    // The only value of a line is a dot, or nobody would see it.
    const lone = one.y?.length < 1000 && one.y.filter(known).length === 1;
    const add = (name, d, more = {}) => { if (d) group.append(drawing("path", { class: name, style, d, ...more })); };
    if (one.kind === "area") { add("area", bandPath(xs, one.base, one.stack, from, to, this.toX, this.toY)); return; }
    if (one.low && this.banded) {
      if (one.bars) add("bars", barPath(xs, one, from, to, this.toX, this.toY));
      else add("band", bandPath(xs, one.low, one.high, from, to, this.toX, this.toY));
    }
    if (one.kind === "dots") add("dots", dotPath(xs, one.y, from, to, this.toX, this.toY), { "stroke-width": one.width ?? 5 });
    else add("line", linePath(xs, one.y, from, to, this.toX, this.toY), { "stroke-width": lone ? 7 : one.width ?? 2, "stroke-dasharray": one.dash });
  }

  drawMarks(svg, frame) {
    for (const kind of this.markKinds()) {
      if (this.hidden.has(this.markName(kind))) continue;
      const shape = MARKS[kind];
      let lines = "", glyphs = "";
      for (const mark of this.current().marks) {
        if (mark.kind !== kind || mark.x < this.low || mark.x > this.high) continue;
        const x = Math.round(this.toX(mark.x)) + 0.5;
        lines += `M${x} ${frame.top}V${frame.bottom}`;
        glyphs += `M${x} ${shape.at === "top" ? frame.top : frame.bottom}${shape.glyph}`;
      }
      svg.append(drawing("g", { class: `mark-${kind}` }, drawing("path", { class: "thread", d: lines }), drawing("path", { class: "glyph", d: glyphs })));
    }
  }
}

function barPath(xs, one, from, to, toX, toY) {
  let path = "";
  for (let i = from; i < to; i++)
    if (known(one.low[i]) && known(one.high[i])) path += `M${toX(xs[i]).toFixed(1)} ${toY(one.low[i]).toFixed(1)}V${toY(one.high[i]).toFixed(1)}`;
  return path;
}
