// What all parts of the page share. Foreign text only ever becomes a text node or an attribute's
// value: nothing here parses markup.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") made.className = value;
    else if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((it) => it !== null && it !== undefined && it !== ""));
  return made;
}

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

// --- numbers as people read them; times are microseconds ----------------------------------------

function spell(us) {
  if (us < 1) return "0";
  if (us < 1000) return `${Math.round(us)} µs`;
  const ms = us / 1000;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(2)} s`;
  if (s < 60) return `${s.toFixed(1)} s`;
  const minutes = Math.floor(s / 60);
  if (minutes < 60) return `${minutes}m ${String(Math.floor(s % 60)).padStart(2, "0")}s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours}h ${String(minutes % 60).padStart(2, "0")}m`;
  return `${Math.floor(hours / 24)}d ${hours % 24}h`;
}

function compact(number) {
  if (number < 10_000) return number.toLocaleString("en");
  if (number < 1_000_000) return `${(number / 1000).toFixed(1)}k`;
  return `${(number / 1e6).toFixed(2)}M`;
}

const two = (number, width = 2) => String(number).padStart(width, "0");

function clock(us) {
  const at = new Date(data.origin_ms + us / 1000);
  const day = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return `${day}.${two(at.getMilliseconds(), 3)}`;
}

function fullTime(us) {
  const at = new Date(data.origin_ms + us / 1000);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(us)}`;
}

// --- what a span is about -----------------------------------------------------------------------

const OPERATIONS = {
  agent: "Agent",
  chat: "Model",
  tool: "Tool",
  handoff: "Handoff",
  guardrail: "Guardrail",
  approval: "Approval",
  wait: "Rate limit",
  sandbox: "Sandbox",
  memory: "Memory",
  code: "Code",
  send: "Message",
  process: "Message",
  workflow: "Trace",
  custom: "Custom",
};
const PARTS = {
  queued: "in a queue",
  lost: "lost with its process, up to the takeover",
  person: "waiting for a person",
  rate_limit: "waiting for a rate limit",
  work: "work",
};
const operationClass = (op) => `op-${op in OPERATIONS ? op : "custom"}`;
