// Other pictures: intervals side by side, the map of clusters, lives, one task of a table.

// Means with intervals, one row each; left or right of a line that stands for no difference.
function drawWhiskers(figure, spec) {
  const host = figure.querySelector(".plot");
  const redraw = () => {
    const width = Math.max(240, host.clientWidth), narrow = width < 520, line = narrow ? 44 : 30;
    const left = narrow ? 12 : 18 + 7 * Math.min(34, Math.max(...spec.rows.map((row) => row.name.length)));
    const right = width - 16, bottom = 34 + line * spec.rows.length, height = bottom + 26 + 15 * wrapped(spec.label, width / 6.4).length;
    const values = spec.rows.flatMap((row) => [row.low, row.high, row.mean]).filter(known).concat(known(spec.line) ? [spec.line] : []);
    let low = Math.min(...values), high = Math.max(...values);
    const pad = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    [low, high] = [low - pad, high + pad];
    const toX = (value) => left + ((value - low) / (high - low)) * (right - left);
    const svg = drawing("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": figure.dataset.label });
    for (const tick of ticks(low, high, (right - left) / 80))
      svg.append(drawing("path", { class: "grid", d: `M${toX(tick)} 14V${bottom}` }),
        drawing("text", { class: "tick", x: toX(tick), y: bottom + 17, "text-anchor": "middle" }, number(tick)));
    if (known(spec.line)) svg.append(drawing("path", { class: "reference", d: `M${toX(spec.line)} 8V${bottom}` }));
    spec.rows.forEach((row, place) => {
      const y = 22 + line * place + line / 2, at = narrow ? y + 6 : y, style = `--own: var(--${row.colour ?? "ink"})`;
      svg.append(drawing("text", { class: "row-name", x: narrow ? left : left - 12, y: narrow ? y - 8 : y + 4, "text-anchor": narrow ? "start" : "end" }, drawing("title", {}, row.name), row.name.length > 34 ? `${row.name.slice(0, 33)}…` : row.name));
      if (!known(row.mean)) { svg.append(drawing("text", { class: "tick", x: left + 4, y: at + 4 }, row.without ?? "not known")); return; }
      if (known(row.low)) svg.append(drawing("path", { class: "bars", style, d: `M${toX(row.low)} ${at}H${toX(row.high)}` }));
      svg.append(drawing("circle", { class: row.hollow ? "dot hollow" : "dot", style, cx: toX(row.mean), cy: at, r: 5.5 },
        drawing("title", {}, `${row.name}: ${number(row.mean)}${known(row.low) ? ` (${number(row.low)} to ${number(row.high)})` : ""}`)));
    });
    wrapped(spec.label, width / 6.4).forEach((text, place) => svg.append(drawing("text", { class: "label", x: narrow ? width / 2 : (left + right) / 2, y: bottom + 34 + 15 * place, "text-anchor": "middle" }, text)));
    host.replaceChildren(svg);
  };
  redraw();
  keepWidth(host, redraw);
}

// A text in lines of so many letters.
function wrapped(text, letters) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const last = lines[lines.length - 1];
    if (last && last.length + word.length + 1 > letters) lines.push(word); else lines[lines.length - 1] = last ? `${last} ${word}` : word;
  }
  return lines;
}

function keepWidth(host, redraw) {
  let width = host.clientWidth;
  new ResizeObserver(() => { if (host.clientWidth !== width) { width = host.clientWidth; redraw(); } }).observe(host);
}

// Discs that would cover each other are pushed apart, within the picture.
function apart(places, radii, width, height) {
  for (let round = 0; round < 60; round++)
    for (let i = 0; i < places.length; i++)
      for (let j = 0; j < i; j++) {
        const dx = places[i][0] - places[j][0] || 0.01 * (i + 1), dy = places[i][1] - places[j][1];
        const far = Math.hypot(dx, dy), lack = radii[i] + radii[j] + 6 - far;
        if (lack <= 0) continue;
        for (const [k, way] of [[i, 0.5], [j, -0.5]]) {
          const [x, y] = [places[k][0] + (way * lack * dx) / far, places[k][1] + (way * lack * dy) / far];
          places[k] = [Math.min(Math.max(x, radii[k] + 3), width - radii[k] - 3), Math.min(Math.max(y, radii[k] + 3), height - radii[k] - 3)];
        }
      }
  return places;
}

// Clusters as discs: the nearer, the more alike; the larger, the more test tasks they take.
function drawMap(figure, spec) {
  const host = figure.querySelector(".plot");
  const redraw = () => {
    const width = Math.max(240, host.clientWidth), height = spec.discs.length < 3 ? 170 : Math.min(360, Math.max(220, width * 0.55));
    const svg = drawing("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": figure.dataset.label });
    const largest = Math.min(64, height / 5, width / (2.2 * Math.sqrt(spec.discs.length) + 1.4));
    const radius = (disc) => Math.max(15, largest * Math.sqrt(disc.size));
    const places = apart(spec.discs.map((disc) => [width / 2 + disc.x * (width / 2 - largest - 12), height / 2 + disc.y * (height / 2 - largest - 12)]),
      spec.discs.map(radius), width, height);
    const place = (disc) => places[spec.discs.indexOf(disc)];
    for (const link of spec.links) {
      const [x1, y1] = place(spec.discs[link.from]), [x2, y2] = place(spec.discs[link.to]);
      svg.append(drawing("path", { class: "link", d: `M${x1} ${y1}L${x2} ${y2}`, "stroke-width": 1 + 5 * link.strength, opacity: 0.25 + 0.6 * link.strength }, drawing("title", {}, link.label)));
    }
    for (const disc of spec.discs) {
      const [x, y] = place(disc), r = radius(disc);
      const whole = drawing("g", { style: `--own: var(--${disc.colour})` }, drawing("title", {}, disc.title));
      whole.append(drawing("circle", { class: "disc", cx: x, cy: y, r }),
        drawing("text", { class: "disc-name", x, y: y + (r > 30 && disc.families ? -2 : 5), "text-anchor": "middle" }, disc.name));
      const room = Math.floor(Math.max(2 * r - 10, 100) / 6);
      if (r > 30 && disc.families) whole.append(drawing("text", { class: "tick strong", x, y: y + 15, "text-anchor": "middle" }, disc.families.length > room ? `${disc.families.slice(0, Math.max(1, room - 1))}…` : disc.families));
      svg.append(whole);
    }
    host.replaceChildren(svg);
  };
  redraw();
  keepWidth(host, redraw);
}

// One bar per cluster, from its birth to its removal or the end.
function drawLives(figure, spec) {
  const host = figure.querySelector(".plot");
  const redraw = () => {
    const width = Math.max(240, host.clientWidth), left = 84, right = width - 24, line = 26;
    const bottom = 30 + line * spec.lives.length, height = bottom + 40;
    const toX = (value) => left + (value / spec.end) * (right - left);
    const svg = drawing("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": figure.dataset.label });
    spec.bands.forEach((band, place) => {
      svg.append(drawing("rect", { class: place % 2 ? "phase other" : "phase", x: toX(band.from), y: 22, width: Math.max(0, toX(band.to) - toX(band.from)), height: bottom - 22 }));
      const room = Math.floor((toX(band.to) - toX(band.from) - 8) / 6.6);
      if (room >= 3) svg.append(drawing("text", { class: "phase-name", x: (toX(band.from) + toX(band.to)) / 2, y: 14, "text-anchor": "middle" }, band.label.length > room ? `${band.label.slice(0, room - 1)}…` : band.label));
    });
    for (const tick of ticks(0, spec.end, (right - left) / roomOf(width)))
      svg.append(drawing("text", { class: "tick", x: toX(tick), y: bottom + 17, "text-anchor": "middle" }, number(tick)));
    spec.lives.forEach((life, place) => {
      const y = 32 + line * place, style = `--own: var(--${life.colour})`;
      svg.append(drawing("text", { class: "row-name", x: left - 10, y: y + 10, "text-anchor": "end" }, life.name),
        drawing("rect", { class: "life", style, x: toX(life.from), y, width: Math.max(3, toX(life.to) - toX(life.from)), height: 13, rx: 4 }, drawing("title", {}, life.title)));
      if (life.removed) svg.append(drawing("path", { class: "removed", style, d: `M${toX(life.to) + 4} ${y + 2}l9 9m0 -9l-9 9` }));
    });
    svg.append(drawing("text", { class: "label", x: (left + right) / 2, y: height - 5, "text-anchor": "middle" }, spec.label));
    host.replaceChildren(svg);
  };
  redraw();
  keepWidth(host, redraw);
}

// Any task of a table: its known rows, what was predicted, the interval, and what was true.
function drawTasks(figure, spec) {
  const bar = element("div", { class: "controls tasks" }), host = figure.querySelector(".plot");
  const slide = element("input", { type: "range", min: 0, max: spec.tasks.length - 1, value: spec.first, "aria-label": "task" });
  const search = element("input", { type: "search", list: "task-names", placeholder: "name of a task", "aria-label": "name of a task", autocomplete: "off" });
  const names = element("datalist", { id: "task-names" }, ...spec.tasks.slice(0, 2000).map((task) => element("option", { value: task.name })));
  const button = (text, label, act) => { const made = element("button", { type: "button", "aria-label": label }, text); made.onclick = act; return made; };
  const words = element("p", { class: "about", "aria-live": "polite" });
  let plot = null;
  const show = (place) => {
    const task = spec.tasks[(place + spec.tasks.length) % spec.tasks.length], { start, stop, from, until } = task;
    slide.value = spec.tasks.indexOf(task);
    words.textContent = task.about;
    const cut = (list, a, b) => list?.slice(a, b);
    const series = [
      { name: "known rows", kind: "dots", colour: "ink", x: cut(spec.known.row, from, until), y: cut(spec.known.target, from, until), width: 8 },
      { name: "predicted, 90 % interval", colour: "c0", x: cut(spec.asked.row, start, stop), y: cut(spec.asked.mean, start, stop), low: cut(spec.asked.low, start, stop), high: cut(spec.asked.high, start, stop), width: 2 },
      { name: "true", kind: "dots", colour: "c4", x: cut(spec.asked.row, start, stop), y: cut(spec.asked.target, start, stop), width: 6 },
    ].filter((one) => one.y?.length);
    if (!spec.asked.low) series.forEach((one) => { if (one.colour === "c0") { one.name = "predicted"; delete one.low; delete one.high; } });
    const next = { x: { label: "row of the table", integer: true, pad: 0.03 }, y: { label: spec.target, fit: true }, series, height: 300, sorted: true };
    if (plot) { Object.assign(plot, { spec: next, range: null }); plot.buildControls(); plot.draw(); } else plot = new Plot(figure, next);
  };
  const go = (step) => show(Number(slide.value) + step);
  const worst = spec.tasks.map((task, place) => [task.error, place]).sort((a, b) => (b[0] ?? 0) - (a[0] ?? 0)).map((pair) => pair[1]);
  let seen = 0;
  bar.append(button("‹", "task before", () => go(-1)), slide, button("›", "next task", () => go(1)), search, names, button("next worst", "the next task with a large error", () => { show(worst[seen % worst.length]); seen++; }));
  slide.oninput = () => show(Number(slide.value));
  search.onchange = () => {
    const place = spec.tasks.findIndex((task) => task.name === search.value);
    if (place < 0) words.textContent = `There is no task “${search.value}” here.`; else show(place);
  };
  host.before(bar, words);
  show(spec.first);
}
