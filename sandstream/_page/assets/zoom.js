// Time: the axis, the overview of the whole run, and looking at a part of it.
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500]
  .flatMap((n) => [n, n * 1e3])
  .concat([1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400].map((n) => n * 1e6))
  .concat([2, 7, 14, 30, 90, 365].map((n) => n * 86400e6))
  .sort((a, b) => a - b);

function tickText(us, step) {
  if (us === 0) return "0";
  if (step < 1000) return `${(us / 1000).toFixed(step < 100 ? 2 : 1)} ms`;
  if (step < 1e6 && us < 1e6) return `${Math.round(us / 1000)} ms`;
  if (step < 1e6) return `${(us / 1e6).toFixed(step < 1e4 ? 3 : step < 1e5 ? 2 : 1)} s`;
  return us < 60e6 ? `${Math.round(us / 1e6)} s` : spell(us);
}

function drawAxis() {
  const room = Math.max(3, Math.floor(waterfall.width / 84));
  const span = view.to - view.from;
  const step = STEPS.find((it) => span / it <= room) || STEPS[STEPS.length - 1];
  const axis = $("axis");
  axis.replaceChildren(
    el("div", { class: "name" }, "Span"),
    el("div", {
      class: "split",
      role: "separator",
      "aria-orientation": "vertical",
      title: "Drag: the width of the names",
    }),
    el("div", { class: "lane" }),
  );
  const lines = [];
  for (let us = Math.ceil(view.from / step) * step; us <= view.to; us += step) {
    const x = laneX(us);
    const tick = el("span", { class: "tick" }, tickText(us, step));
    tick.style.left = `${x}%`;
    if (((100 - x) / 100) * waterfall.width > 52) axis.lastElementChild.append(tick);
    const line = el("i");
    line.style.left = `${x}%`;
    lines.push(line);
  }
  gridLines.replaceChildren(...lines);
  $("reset").hidden = view.from === 0 && view.to === data.length;
}

// --- looking at a part --------------------------------------------------------------------------

function zoomTo(from, to, margin = 0) {
  const least = Math.min(20, data.length);
  const spare = Math.max((to - from) * margin, margin ? least / 2 : 0);
  let [start, end] = [from - spare, to + spare];
  if (end - start < least) [start, end] = [start - least / 2, start + least / 2];
  const length = Math.min(end - start, data.length);
  view.from = clamp(start, 0, data.length - length);
  view.to = view.from + length;
  drawWaterfall();
}

const resetZoom = () => zoomTo(0, data.length);

function zoomBy(factor, around = (view.from + view.to) / 2) {
  zoomTo(around - (around - view.from) * factor, around + (view.to - around) * factor);
}

function timeAt(element, x, from, to) {
  const box = element.getBoundingClientRect();
  return from + clamp((x - box.left) / box.width, 0, 1) * (to - from);
}

// Dragging over a stretch of time looks at it. `whole`: over the overview, which never zooms.
function dragToZoom(host, laneOf, whole) {
  const band = el("div", { class: "band", hidden: "", "aria-hidden": "true" });
  $("timeline").append(band);
  host.addEventListener("pointerdown", (down) => {
    const lane = laneOf(down);
    if (!lane || down.button !== 0 || down.pointerType === "touch") return;
    const range = whole ? [0, data.length] : [view.from, view.to];
    const began = timeAt(lane, down.clientX, ...range);
    const box = lane.getBoundingClientRect();
    const frame = $("timeline").getBoundingClientRect();
    waterfall.wasDrag = false;
    const drag = (event) => {
      if (!waterfall.wasDrag && Math.abs(event.clientX - down.clientX) < 5) return;
      waterfall.wasDrag = true;
      event.preventDefault();
      const [a, b] = [down.clientX, clamp(event.clientX, box.left, box.right)].sort((m, n) => m - n);
      band.hidden = false;
      band.style.left = `${a - frame.left}px`;
      band.style.width = `${b - a}px`;
      const at = timeAt(lane, event.clientX, ...range);
      band.textContent = spell(Math.abs(at - began));
    };
    const stop = (event) => {
      removeEventListener("pointermove", drag);
      removeEventListener("pointerup", stop);
      band.hidden = true;
      const at = timeAt(lane, event.clientX, ...range);
      if (waterfall.wasDrag) {
        zoomTo(Math.min(began, at), Math.max(began, at));
        setTimeout(() => (waterfall.wasDrag = false));
      } else if (whole) {
        const half = (view.to - view.from) / 2;
        zoomTo(at - half, at + half);
      }
    };
    addEventListener("pointermove", drag);
    addEventListener("pointerup", stop);
  });
}
dragToZoom($("waterfall"), (event) => event.target.closest(".lane"), false);
dragToZoom($("axis"), (event) => event.target.closest(".lane"), false);
dragToZoom($("overview"), () => $("overview").querySelector("canvas"), true);

$("waterfall").addEventListener(
  "wheel",
  (event) => {
    const lane = event.target.closest(".lane");
    if (!lane || !(event.ctrlKey || event.metaKey || event.shiftKey)) return;
    event.preventDefault();
    const turned = event.deltaY || event.deltaX;
    if (event.shiftKey) {
      const step = ((view.to - view.from) / 8) * Math.sign(turned);
      zoomTo(view.from + step, view.to + step);
    } else zoomBy(turned > 0 ? 1.25 : 0.8, timeAt(lane, event.clientX, view.from, view.to));
  },
  { passive: false },
);

// --- the line under the pointer -----------------------------------------------------------------

$("timeline").addEventListener("pointermove", (event) => {
  const lane = event.target.closest("#waterfall .lane, #axis .lane");
  crosshair.hidden = !lane;
  if (!lane) return;
  const frame = $("timeline").getBoundingClientRect();
  crosshair.style.left = `${event.clientX - frame.left}px`;
  crosshair.dataset.time = spell(timeAt(lane, event.clientX, view.from, view.to));
});
$("timeline").addEventListener("pointerleave", () => (crosshair.hidden = true));

// --- the overview -------------------------------------------------------------------------------

function drawOverview() {
  const [canvas, windowed] = $("overview").children;
  const scale = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = width * scale;
  canvas.height = height * scale;
  const paint = canvas.getContext("2d");
  paint.scale(scale, scale);
  const colours = operationColours();
  const rows = tree.visible.map((index) => tree.rows[index]).filter((row) => !row.below);
  const step = (height - 6) / Math.max(rows.length, 8);
  rows.forEach((row, at) => {
    paint.fillStyle = row.error ? colours.error : colours[row.op] || colours.custom;
    paint.globalAlpha = row.op === "approval" || row.op === "wait" ? 0.45 : 0.9;
    const x = (row.work / data.length) * width;
    const length = Math.max(1.5, ((row.end - row.work) / data.length) * width);
    paint.fillRect(x, 3 + at * step, length, Math.max(1, Math.min(step * 0.8, 3)));
  });
  windowed.style.left = `${(view.from / data.length) * 100}%`;
  windowed.style.width = `${((view.to - view.from) / data.length) * 100}%`;
  windowed.hidden = view.from === 0 && view.to === data.length;
}

function operationColours() {
  const probe = el("i", { class: "probe" });
  document.body.append(probe);
  const found = {};
  for (const op of Object.keys(OPERATIONS)) {
    probe.className = `probe ${operationClass(op)}`;
    found[op] = getComputedStyle(probe).backgroundColor;
  }
  probe.className = "probe failed";
  found.error = getComputedStyle(probe).backgroundColor;
  probe.remove();
  return found;
}

// --- the width of the names ---------------------------------------------------------------------

$("axis").addEventListener("pointerdown", (down) => {
  if (!down.target.classList.contains("split")) return;
  down.preventDefault();
  const frame = $("timeline").getBoundingClientRect();
  const drag = (event) => {
    const share = clamp((event.clientX - frame.left) / frame.width, 0.12, 0.75);
    $("timeline").style.setProperty("--share", share.toFixed(4));
    drawCurrent();
  };
  addEventListener("pointermove", drag);
  addEventListener("pointerup", () => removeEventListener("pointermove", drag), { once: true });
});
