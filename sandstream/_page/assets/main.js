// Tabs, addresses, keys, filter, light and dark, printing.
const TABS = ["timeline", "conversation", "events"];
let currentTab = "";

function drawCurrent() {
  if (currentTab === "timeline") {
    // The width is known only once rows are drawn; the bars' captions depend on it.
    const lane = $("axis").lastElementChild;
    if (lane) waterfall.width = lane.clientWidth || waterfall.width;
    drawWaterfall();
  }
  if (currentTab === "events") drawEvents();
}

function openTab(name) {
  if (name === currentTab) return;
  currentTab = name;
  for (const it of TABS) {
    $(it).hidden = it !== name;
    $(`tab-${it}`).setAttribute("aria-selected", String(it === name));
    $(`tab-${it}`).tabIndex = it === name ? 0 : -1;
  }
  document.documentElement.dataset.tab = name;
  if (document.activeElement.getAttribute("role") === "tab") $(`tab-${name}`).focus();
  $("details").hidden = true;
  $("found").textContent = "";
  drawCurrent();
  if (name === "timeline") drawCurrent();
}

for (const name of TABS) {
  $(`tab-${name}`).addEventListener("click", () => {
    openTab(name);
    setHash(`view=${name}`);
  });
}
document.querySelector(".tabs").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.stopPropagation();
  const next = TABS[(TABS.indexOf(currentTab) + step + TABS.length) % TABS.length];
  openTab(next);
  setHash(`view=${next}`);
  $(`tab-${next}`).focus();
});

// --- addresses: #span=ID, #event=SEQUENCE, #talk=RUN, #view=TAB ----------------------------------

function setHash(hash) {
  if (location.hash !== `#${hash}`) history.replaceState(null, "", `#${hash}`);
}

function follow() {
  const [what, rest] = location.hash.slice(1).split("=", 2);
  let id = "";
  try {
    id = decodeURIComponent(rest || "");
  } catch {
    return openTab("timeline"); // a truncated address
  }
  if (what === "span" && tree.byId.has(id)) {
    openTab("timeline");
    clearFilter();
    const row = tree.byId.get(id);
    select(row.index, { isCentered: true, isQuiet: true });
    showRow(row);
  } else if (what === "event") {
    openTab("events");
    clearFilter();
    const index = data.events.findIndex((it) => it.seq === Number(id));
    if (index >= 0) selectEvent(index, { isCentered: true, isShown: true });
  } else if (what === "talk") {
    openTab("conversation");
    openTalk(id);
  } else openTab(what === "view" && TABS.includes(id) ? id : "timeline");
}

function openTalk(run) {
  const found = [...document.querySelectorAll(".child")].find((it) => it.dataset.run === run);
  if (!found) return;
  for (let it = found; it; it = it.parentElement.closest("details")) it.open = true;
  found.scrollIntoView({ block: "start" });
  found.querySelector("summary").focus();
}
addEventListener("hashchange", follow);

// --- filter -------------------------------------------------------------------------------------

function applyFilter() {
  tree.search($("filter").value, $("errors").getAttribute("aria-pressed") === "true");
  $("waterfall").scrollTop = 0;
  $("eventlist").scrollTop = 0;
  drawCurrent();
}

function clearFilter() {
  if (!$("filter").value && $("errors").getAttribute("aria-pressed") !== "true") return;
  $("filter").value = "";
  $("errors").setAttribute("aria-pressed", "false");
  applyFilter();
}

$("filter").addEventListener("input", applyFilter);
if (tree.failed) {
  $("errors").hidden = false;
  $("errors").textContent = `${tree.failed} failed`;
}
$("errors").addEventListener("click", () => {
  const isOn = $("errors").getAttribute("aria-pressed") === "true";
  $("errors").setAttribute("aria-pressed", String(!isOn));
  applyFilter();
});

// --- buttons ------------------------------------------------------------------------------------

$("reset").addEventListener("click", resetZoom);
$("fold").addEventListener("click", () => {
  const isFolding = $("fold").textContent === "Fold";
  $("fold").textContent = isFolding ? "Unfold" : "Fold";
  tree.foldAll(isFolding);
  drawWaterfall();
});

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (prefersDark.matches ? "dark" : "light")) === "dark";
$("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  drawCurrent();
});
prefersDark.addEventListener("change", drawCurrent);

// --- keys ---------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target;
  if (target === $("filter")) {
    if (event.key === "Escape") clearFilter();
    if (event.key !== "Escape" && event.key !== "Enter") return;
    event.preventDefault();
    focusList();
    if (event.key === "Enter" && tree.matches && tree.matches.size && currentTab === "timeline") {
      select(Math.min(...tree.matches));
    }
    return;
  }
  if (listKey(event, target) || pageKey(event)) event.preventDefault();
});

function focusList() {
  $({ timeline: "waterfall", events: "eventlist", conversation: "conversation" }[currentTab]).focus();
}

// Arrows and the like steer the list, unless something else that listens to them has the focus.
function listKey(event, target) {
  const isOnTab = target.getAttribute("role") === "tab" && /^(Arrow|Page|Home|End)/.test(event.key);
  const isList = target === document.body || target === $("waterfall") || target === $("eventlist");
  if (!isList && !isOnTab) return false;
  if (isOnTab) focusList();
  if (currentTab === "timeline") return waterfallKey(event);
  if (currentTab === "events") return eventKey(event);
  return false;
}

function pageKey(event) {
  switch (event.key) {
    case "/":
      if (currentTab === "conversation") return false;
      $("filter").focus();
      $("filter").select();
      return true;
    case "Escape":
      if (!$("details").hidden) closeDetails();
      else if (!$("reset").hidden) resetZoom();
      else clearFilter();
      return true;
    case "1": case "2": case "3":
      openTab(TABS[Number(event.key) - 1]);
      setHash(`view=${currentTab}`);
      return true;
    case "0": return currentTab === "timeline" && (resetZoom(), true);
    case "+": return currentTab === "timeline" && (zoomBy(0.5), true);
    case "-": return currentTab === "timeline" && (zoomBy(2), true);
  }
  return false;
}

// --- the rest -----------------------------------------------------------------------------------

function drawLegend() {
  const legend = $("legend");
  const seen = new Set(tree.rows.map((row) => row.op));
  for (const [op, name] of Object.entries(OPERATIONS)) {
    if (seen.has(op)) legend.append(el("span", { class: operationClass(op) }, el("i", { class: "dot" }), name));
  }
  const kinds = new Set(tree.rows.flatMap((row) => (row.parts || []).map((part) => part[0])));
  for (const [kind, name] of Object.entries(PARTS)) {
    if (kind !== "work" && kinds.has(kind)) {
      legend.append(el("span", null, el("i", { class: `part ${kind}` }), name));
    }
  }
  const keys = "↑ ↓ ← → rows · Enter details · drag a time range · f this span · 0 whole time · / filter";
  legend.append(el("span", { class: "keys" }, keys));
}

for (const it of document.querySelectorAll("time")) {
  const at = new Date(it.getAttribute("datetime"));
  it.title = it.textContent;
  it.textContent = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}
addEventListener("beforeprint", () => {
  drawEvents();
  drawWaterfall();
  rowList.whole(true);
  eventList.whole(true);
});
addEventListener("afterprint", () => {
  rowList.whole(false);
  eventList.whole(false);
});
let redrawing = 0;
addEventListener("resize", () => {
  cancelAnimationFrame(redrawing);
  redrawing = requestAnimationFrame(drawCurrent);
});

document.documentElement.classList.add("js");
drawLegend();
follow();
