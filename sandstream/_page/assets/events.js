// The events of the log, as they are.
const eventState = { shown: data.events.map((_, index) => index), selected: -1 };
const eventList = new VirtualRows($("eventlist"), ROW_HEIGHT, (place) => drawEvent(place));
const hasManyRuns = data.runs.length > 1;
const agentOf = new Map(data.runs.map((it) => [it.run, it.agent]));

$("events").prepend(
  el(
    "div",
    { class: "event titles", "aria-hidden": "true" },
    ...["Seq.", "Time", "After", "Kind", hasManyRuns ? "Agent" : null, "About"].map((title, at) =>
      title ? el("div", { class: ["seq", "clock", "offset", "kind", "who", "about"][at] }, title) : null,
    ),
  ),
);

const kindTone = (kind) => kind.replace(/[^a-z]+/g, "-");

function drawEvent(place) {
  const index = eventState.shown[place];
  const it = data.events[index];
  const cell = (css, text) => el("div", { class: css, role: "gridcell" }, el("bdi", null, text || ""));
  return el(
    "div",
    {
      class: "row event",
      role: "row",
      id: `event-${index}`,
      "data-index": index,
      "aria-rowindex": place + 1,
      "aria-selected": String(index === eventState.selected),
    },
    cell("seq", String(it.seq)),
    cell("clock", clock(it.at)),
    cell("offset", `+${spell(it.at)}`),
    el("div", { class: `kind kind-${kindTone(it.kind)}`, role: "gridcell" }, it.kind),
    hasManyRuns ? cell("who", agentOf.get(it.run) || it.run) : null,
    cell("about", it.about),
  );
}

function drawEvents() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const isMatch = (it) => {
    if (it.haystack === undefined) {
      const said = [it.kind, it.about, it.subject, it.run, agentOf.get(it.run), String(it.seq), it.body];
      it.haystack = said.join("\n").toLowerCase();
    }
    return words.every((word) => it.haystack.includes(word));
  };
  eventState.shown = [];
  data.events.forEach((it, index) => isMatch(it) && eventState.shown.push(index));
  $("found").textContent = words.length ? `${compact(eventState.shown.length)} of ${compact(data.events.length)}` : "";
  $("eventlist").setAttribute("aria-rowcount", eventState.shown.length);
  eventList.reset(eventState.shown.length);
}

function selectEvent(index, { isCentered = false, isShown = !$("details").hidden } = {}) {
  const at = eventState.shown.indexOf(index);
  if (at < 0) return;
  const before = $(`event-${eventState.selected}`);
  if (before) before.setAttribute("aria-selected", "false");
  eventState.selected = index;
  if (isCentered) eventList.center(at);
  else eventList.reveal(at);
  $(`event-${index}`).setAttribute("aria-selected", "true");
  $("eventlist").setAttribute("aria-activedescendant", `event-${index}`);
  if (isShown) showEvent(data.events[index]);
}

function showEvent(it) {
  setHash(`event=${it.seq}`);
  const title = el("div", { class: "about" }, el("span", { class: "kind" }, "Event"), el("h2", null, it.kind));
  const row = tree.rows.find((one) => one.seq === it.seq && one.run === it.run);
  openDetails(
    title,
    pairs([
      ["Sequence", it.seq],
      ["Time", `${fullTime(it.at)}  (+${spell(it.at)})`],
      ["Run", it.run],
      ["Agent", agentOf.get(it.run)],
      ["Subject", it.subject],
      ["Began", row ? jump(`span=${encodeURIComponent(row.id)}`, row.name) : ""],
    ]),
    section("Body", block(it.body)),
  );
}

function eventKey(event) {
  const at = eventState.shown.indexOf(eventState.selected);
  const go = (place) => {
    const next = eventState.shown[clamp(place, 0, eventState.shown.length - 1)];
    if (next !== undefined) selectEvent(next);
    return true;
  };
  switch (event.key) {
    case "ArrowDown": return go(at + 1);
    case "ArrowUp": return go(at - 1);
    case "PageDown": return go(at + eventList.page);
    case "PageUp": return go(at - eventList.page);
    case "Home": return go(0);
    case "End": return go(Infinity);
    case "Enter":
      if (at >= 0) selectEvent(eventState.selected, { isShown: true });
      return true;
  }
  return false;
}

$("eventlist").addEventListener("click", (event) => {
  const line = event.target.closest(".row");
  if (line) selectEvent(Number(line.dataset.index), { isShown: true });
});
