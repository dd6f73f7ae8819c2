// The waterfall: a treegrid of which only the rows in sight exist.
const ROW_HEIGHT = 28;
const view = { from: 0, to: data.length };
const waterfall = { selected: -1, width: 600 };
const laneX = (us) => ((us - view.from) / (view.to - view.from)) * 100;

const rowList = new VirtualRows($("waterfall"), ROW_HEIGHT, (place) => drawRow(place));
const gridLines = el("div", { class: "gridlines", "aria-hidden": "true" });
const crosshair = el("div", { class: "crosshair", hidden: "", "aria-hidden": "true" });
$("timeline").append(gridLines, crosshair);

function drawRow(place) {
  const row = tree.rows[tree.visible[place]];
  const isOpen = row.below > 0 && (tree.matches !== null || !tree.folded.has(row.index));
  const classes = ["row", operationClass(row.op)];
  if (row.error) classes.push("failed");
  if (row.below) classes.push("group");
  if (row.is_run) classes.push("run");
  if (tree.matches && !tree.matches.has(row.index)) classes.push("context");
  return el(
    "div",
    {
      class: classes.join(" "),
      role: "row",
      id: `row-${row.index}`,
      "data-index": row.index,
      "aria-level": row.depth + 1,
      "aria-rowindex": place + 1,
      "aria-selected": String(row.index === waterfall.selected),
      "aria-expanded": row.below ? String(isOpen) : undefined,
    },
    nameCell(row, isOpen),
    ...barCells(row),
  );
}

function nameCell(row, isOpen) {
  const cell = el("div", { class: "name", role: "gridcell" });
  const shownDepth = Math.min(row.depth, 12);
  for (let depth = 0; depth < shownDepth; depth++) cell.append(el("i", { class: "guide" }));
  cell.append(el("i", { class: row.below ? (isOpen ? "caret open" : "caret") : "caret none" }));
  cell.append(el("i", { class: "dot" }));
  const label = el("span", { class: "label", title: row.name }, el("bdi", null, row.label));
  if (row.detail) label.append(el("span", { class: "detail" }, el("bdi", null, ` ${row.detail}`)));
  cell.append(label, ...badges(row, isOpen));
  return cell;
}

function badges(row, isOpen) {
  const made = [];
  const badge = (css, text, title) => made.push(el("span", { class: `badge ${css}`, title }, text));
  const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;
  if (row.attempts > 1) {
    badge("retry", count(row.attempts, "attempt", "attempts"), lostText(row));
  } else if (row.takeovers) {
    badge("retry", count(row.takeovers, "takeover", "takeovers"), "another process went on");
  }
  if (row.retries) badge("retry", count(row.retries, "retry", "retries"), "requests that were repeated");
  if (row.decision) badge("decision", row.decision, row.by ? `by ${row.by}` : "");
  if (row.is_run && row.status !== "completed" && row.status !== "ok") {
    badge(`status-${row.status}`, row.status.replace("_", " "), "status of the run");
  } else if (row.error) badge("error", "failed", row.error);
  if (row.below && !isOpen) {
    if (row.failures) badge("error", `${row.failures} failed`, "in what is folded");
    badge("count", String(row.below), "rows directly below");
  }
  return made;
}

// --- bars ---------------------------------------------------------------------------------------

// The lane of the bar, and the room behind it for a caption that finds none in the lane.
function barCells(row) {
  const tail = el("div", { class: "tail", "aria-hidden": "true" });
  const lane = el("div", { class: "lane", role: "gridcell", "aria-label": barText(row) });
  if (row.end < view.from || row.start > view.to) {
    const side = row.end < view.from ? "before" : "after";
    lane.append(el("span", { class: `off ${side}` }, side === "before" ? "◂" : "▸"));
    return [lane, tail];
  }
  for (const [kind, start, end] of segments(row)) {
    const part = el("i", { class: `part ${kind}` });
    place(part, start, end);
    if (row.is_open && end >= row.end) part.classList.add("lasts");
    lane.append(part);
  }
  for (const moment of (row.moments || []).slice(0, 40)) {
    if (moment.at < view.from || moment.at > view.to) continue;
    const tick = el("i", { class: "moment", title: `${moment.name} at ${spell(moment.at)}` });
    tick.style.left = `${laneX(moment.at)}%`;
    lane.append(tick);
  }
  const text = caption(row);
  (text.classList.contains("behind") ? tail : lane).append(text);
  return [lane, tail];
}

function place(part, start, end) {
  const left = clamp(laneX(start), -1, 101);
  part.style.left = `min(${left}%, 100% - 2px)`; // at the very end it would not be seen
  part.style.width = `${clamp(laneX(end), -1, 101) - left}%`;
}

// Time in a queue before the work began.
function queuedTime(row) {
  const before = (row.parts || []).filter(([kind, , end]) => kind === "queued" && end <= row.work);
  return before.reduce((sum, [, start, end]) => sum + end - start, 0);
}

function lostText(row) {
  const who = row.lost_worker ? ` with ${row.lost_worker}` : "";
  return row.takeovers ? `${spell(row.lost || 0)} lost${who}, up to the takeover` : "tried again";
}

// The parts of a bar that are in view; those too small to be seen are one with what is before.
function segments(row) {
  const pixel = (view.to - view.from) / waterfall.width;
  const joined = [];
  for (const [kind, start, end] of row.parts || []) {
    if (end < view.from || start > view.to) continue;
    const last = joined[joined.length - 1];
    const isSmall = end - start < pixel || (last && last[2] - last[1] < pixel);
    if (last && (last[0] === kind || isSmall) && start - last[2] < pixel) {
      if (end - start > last[2] - last[1]) last[0] = kind;
      last[2] = end;
    } else joined.push([kind, start, end]);
  }
  return joined;
}

function barText(row) {
  const said = [`begins at ${spell(row.start)}`, `took ${spell(row.end - row.work)}`];
  if (queuedTime(row)) said.push(`${spell(queuedTime(row))} in a queue`);
  if (row.lost) said.push(lostText(row));
  if (row.error) said.push(`failed: ${row.error}`);
  return said.join(", ");
}

function caption(row) {
  const tokens = row.tokens_in || row.tokens_out;
  const took = `${spell(row.end - row.work)}${row.is_open ? " …" : ""}`;
  const text = el("span", { class: "caption" }, el("b", null, took));
  let length = took.length;
  if (tokens && waterfall.width > 320) {
    const used = `${compact(row.tokens_in || 0)} → ${compact(row.tokens_out || 0)}`;
    text.append(el("span", { title: "tokens in → out" }, used));
    length += used.length + 2;
  }
  const needed = ((length * 7.2 + 16) / waterfall.width) * 100;
  const [start, end] = [clamp(laneX(row.start), 0, 100), clamp(laneX(row.end), 0, 100)];
  if (100 - end >= needed) text.style.left = `${end}%`;
  else if (start >= needed) text.style.right = `${100 - start}%`;
  else text.classList.add("behind");
  return text;
}

// --- drawing ------------------------------------------------------------------------------------

function drawWaterfall() {
  const host = $("waterfall");
  const lane = rowList.sizer.querySelector(".lane");
  host.setAttribute("aria-rowcount", tree.visible.length);
  if (lane) waterfall.width = lane.clientWidth || waterfall.width;
  rowList.reset(tree.visible.length);
  const scrollbar = host.offsetWidth - host.clientWidth;
  $("timeline").style.setProperty("--scrollbar", `${scrollbar}px`);
  drawAxis();
  drawOverview();
  drawFound();
}

function drawFound() {
  const shown = tree.matches === null ? "" : `${compact(tree.matches.size)} of ${compact(tree.rows.length)}`;
  if ($("timeline").hidden === false) $("found").textContent = shown;
}

function select(index, { isCentered = false, isQuiet = false } = {}) {
  const row = tree.rows[index];
  if (!row) return;
  if (!tree.places.has(index)) {
    tree.unfoldTo(row);
    drawWaterfall();
  }
  const before = $(`row-${waterfall.selected}`);
  if (before) before.setAttribute("aria-selected", "false");
  waterfall.selected = index;
  const at = tree.places.get(index);
  if (at === undefined) return;
  if (isCentered) rowList.center(at);
  else rowList.reveal(at);
  $(`row-${index}`).setAttribute("aria-selected", "true");
  $("waterfall").setAttribute("aria-activedescendant", `row-${index}`);
  if (!isQuiet && !$("details").hidden) showRow(row);
}

function fold(row, isFolded) {
  tree.toggle(row, isFolded);
  drawWaterfall();
  if (waterfall.selected >= 0 && tree.places.has(waterfall.selected)) select(waterfall.selected);
}

function move(step) {
  const at = tree.places.get(waterfall.selected);
  const from = at === undefined ? (step > 0 ? -1 : 1) : at;
  const next = clamp(from + step, 0, tree.visible.length - 1);
  if (tree.visible.length) select(tree.visible[next]);
}

function waterfallKey(event) {
  const row = tree.rows[waterfall.selected];
  const isOpen = row && row.below && !tree.folded.has(row.index);
  switch (event.key) {
    case "ArrowDown": return move(1), true;
    case "ArrowUp": return move(-1), true;
    case "PageDown": return move(rowList.page), true;
    case "PageUp": return move(-rowList.page), true;
    case "Home": return move(-Infinity), true;
    case "End": return move(Infinity), true;
    case "ArrowRight":
      if (row && row.below && !isOpen) fold(row, false);
      else if (isOpen) move(1);
      return true;
    case "ArrowLeft":
      if (isOpen) fold(row, true);
      else if (row && row.parent) select(row.parent.index);
      return true;
    case "Enter":
      if (row) showRow(row);
      return true;
    case " ":
      if (row && row.below) fold(row, isOpen);
      return true;
    case "f":
      if (row) zoomTo(row.start, row.end, 0.1);
      return true;
  }
  return false;
}

$("waterfall").addEventListener("click", (event) => {
  const line = event.target.closest(".row");
  if (!line || waterfall.wasDrag) return;
  const row = tree.rows[Number(line.dataset.index)];
  if (event.target.classList.contains("caret") && row.below) {
    select(row.index, { isQuiet: true });
    fold(row);
  } else {
    select(row.index, { isQuiet: true });
    showRow(row);
  }
});
$("waterfall").addEventListener("dblclick", (event) => {
  const line = event.target.closest(".row");
  const row = line && tree.rows[Number(line.dataset.index)];
  if (row && event.target.closest(".lane")) zoomTo(row.start, row.end, 0.1);
});
