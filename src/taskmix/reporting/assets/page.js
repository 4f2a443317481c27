// Draws every picture of the page, sorts tables, and keeps a page of a running run fresh.

const KINDS = {
  plot: (figure, spec) => new Plot(figure, spec),
  whiskers: drawWhiskers,
  map: drawMap,
  lives: drawLives,
  tasks: drawTasks,
};

function drawAll() {
  const plots = [];
  for (const figure of document.querySelectorAll("figure[data-kind]")) {
    const spec = JSON.parse(figure.querySelector("script").textContent);
    const made = KINDS[figure.dataset.kind](figure, spec);
    if (!(made instanceof Plot)) continue;
    plots.push(made);
    const numbers = figure.querySelector("details.numbers");
    if (numbers) numbers.ontoggle = () => { if (numbers.open) numbersOf(made, numbers.querySelector("div")); };
  }
  // Small pictures stand side by side on paper, too.
  const force = (width) => () => { for (const plot of plots) { plot.forced = width && plot.spec.mini ? 240 : width; plot.draw(); } };
  addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("section > details")) folded.open = true;
    force(660)();
  });
  addEventListener("afterprint", force(undefined));
}

// A column is sorted by its numbers, which cells carry apart from what they show.
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = element("button", { type: "button" }, ...head.childNodes);
    head.replaceChildren(button);
    button.onclick = () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [one, two] = [key(a), key(b)], [x, y] = [Number(one), Number(two)];
        if (one === "" || two === "") return (one === "") - (two === "");
        const order = Number.isNaN(x) || Number.isNaN(y) ? one.localeCompare(two) : x - y;
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows);
    };
  });
}

function themes() {
  const button = document.querySelector("#theme"), root = document.documentElement;
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const name = () => { button.textContent = dark() ? "light" : "dark"; };
  try { root.dataset.theme = sessionStorage.getItem("theme") ?? ""; } catch { /* a page from a file may have no storage */ }
  if (!root.dataset.theme) delete root.dataset.theme;
  button.hidden = false;
  button.onclick = () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { sessionStorage.setItem("theme", root.dataset.theme); } catch { /* as above */ }
    name();
  };
  name();
}

function copying() {
  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.onclick = async () => {
      try { await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent); button.textContent = "copied"; } catch { button.textContent = "select and copy"; }
    };
  }
}

// The file is written anew while the run goes on; whoever looks closely is not disturbed.
function refreshing() {
  const seconds = Number(document.body.dataset.refresh);
  if (!seconds) return;
  let touched = 0;
  for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, () => { touched = Date.now(); });
  setInterval(() => { if (!document.hidden && Date.now() - touched > 15000) location.reload(); }, 1000 * seconds);
}

themes();
drawAll();
document.querySelectorAll("table.sortable").forEach(sortable);
copying();
refreshing();
document.body.dataset.ready = "yes";
