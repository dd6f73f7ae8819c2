// The panel beside the list: everything about one span, or one event.
let returnFocus = null;

function openDetails(title, ...content) {
  const panel = $("details");
  if (panel.hidden) returnFocus = document.activeElement;
  const isNew = panel.hidden;
  panel.hidden = false;
  panel.replaceChildren(
    el(
      "header",
      null,
      title,
      el("button", { type: "button", class: "close", "aria-label": "Close the details", click: closeDetails }, "✕"),
    ),
    ...content.filter(Boolean),
  );
  panel.scrollTop = 0;
  if (isNew) drawCurrent();
}

function closeDetails() {
  $("details").hidden = true;
  drawCurrent();
  if (returnFocus && returnFocus.isConnected) returnFocus.focus();
  returnFocus = null;
}

const section = (title, ...content) => el("section", null, el("h3", null, title), ...content);
const block = (text, css = "") => el("pre", { class: css, dir: "auto", tabindex: "0" }, text);

function pairs(list) {
  const made = el("dl", { class: "pairs" });
  for (const [name, value] of list) {
    if (value === undefined || value === "" || value === null) continue;
    const shown = value instanceof Node ? value : el("bdi", null, String(value));
    made.append(el("dt", null, name), el("dd", null, shown));
  }
  return made;
}

function jump(hash, text) {
  return el("a", { href: `#${hash}` }, el("bdi", null, text));
}

const CONTENTS = {
  "gen_ai.system_instructions": "Instructions",
  "gen_ai.input.messages": "Input",
  "gen_ai.output.messages": "Output",
  "gen_ai.tool.call.arguments": "Arguments",
  "gen_ai.tool.call.result": "Result",
};

// --- a span -------------------------------------------------------------------------------------

function showRow(row) {
  setHash(`span=${encodeURIComponent(row.id)}`);
  const kind = el("span", { class: `kind ${operationClass(row.op)}` }, OPERATIONS[row.op] || row.op);
  const title = el("div", { class: "about" }, kind, el("h2", null, el("bdi", null, row.name)));
  const content = [];
  if (row.error) {
    content.push(el("div", { class: "failure" }, el("b", null, row.error), message(row)));
  }
  content.push(pairs(rowFacts(row)), shares(row));
  for (const [name, text] of Object.entries(row.contents || {})) {
    content.push(section(CONTENTS[name] || name, block(text)));
  }
  if (row.moments) content.push(section("Moments", moments(row)));
  if (row.links) content.push(section("Follows from", links(row)));
  const attributes = Object.entries(row.attributes || {});
  if (attributes.length) content.push(section("Attributes", pairs(attributes)));
  content.push(pairs([["Span", el("code", null, row.id)]]));
  openDetails(title, ...content);
}

const message = (row) => (row.message ? el("p", { dir: "auto" }, row.message) : null);

function rowFacts(row) {
  const run = data.runs.find((it) => it.run === row.run);
  const child = row.child || (row.is_run && row.run !== data.run ? row.run : "");
  return [
    ["Begins", `${fullTime(row.work)}  (+${spell(row.work)})`],
    ["Took", row.is_open ? `${spell(row.end - row.work)}, and still lasts` : spell(row.end - row.work)],
    ["In a queue", queuedTime(row) ? spell(queuedTime(row)) : ""],
    ["Process", row.worker],
    ["Attempts", row.attempts > 1 ? row.attempts : ""],
    ["Takeovers", row.takeovers || ""],
    ["Lost", row.lost ? `${spell(row.lost)}, up to the takeover` : ""],
    ["Lost with", row.takeovers && !row.is_run ? row.lost_worker || "a process that the log does not name" : ""],
    ["Retries", row.retries || ""],
    ["Agent", row.agent],
    ["Run", row.run],
    ["Status", row.is_run ? row.status.replace("_", " ") : ""],
    ["Model", row.model],
    ["Tokens", row.tokens_in || row.tokens_out ? `${compact(row.tokens_in || 0)} in, ${compact(row.tokens_out || 0)} out` : ""],
    ["Decision", row.decision ? row.decision + (row.by ? `, by ${row.by}` : "") : ""],
    ["Child run", child && run ? jump(`talk=${encodeURIComponent(child)}`, `read ${child}`) : child],
    ["Log", row.seq ? jump(`event=${row.seq}`, `event ${row.seq}`) : ""],
  ];
}

// How the time of a bar is made up.
function shares(row) {
  const sums = {};
  for (const [kind, start, end] of row.parts || []) sums[kind] = (sums[kind] || 0) + end - start;
  const known = Object.keys(PARTS).filter((kind) => sums[kind] > 0);
  const total = row.end - row.start;
  if (known.length < 2 || !total) return null;
  const strip = el("div", { class: `shares ${operationClass(row.op)}`, "aria-hidden": "true" });
  const list = [];
  for (const kind of known) {
    const part = el("i", { class: `part ${kind}` });
    part.style.flexGrow = String(sums[kind] / total);
    strip.append(part);
    list.push([PARTS[kind], `${spell(sums[kind])} · ${Math.round((sums[kind] / total) * 100)} %`]);
  }
  return section("Time", strip, pairs(list));
}

function moments(row) {
  const list = el("ol", { class: "moments" });
  for (const it of row.moments) {
    const head = el("div", null, el("b", null, it.name), el("span", null, `+${spell(it.at - row.work)}`));
    list.append(el("li", null, head, pairs(Object.entries(it.attributes || {}))));
  }
  return list;
}

function links(row) {
  const list = el("ul", { class: "links" });
  for (const it of row.links) {
    const target = tree.byId.get(it.span);
    const text = target ? target.name : it.span;
    const shown = target ? jump(`span=${encodeURIComponent(it.span)}`, text) : el("code", null, text);
    list.append(el("li", null, it.why ? el("span", { class: "why" }, it.why) : null, shown));
  }
  return list;
}
