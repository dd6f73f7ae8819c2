"""The conversation of a run, and of the runs below it, as markup that needs no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandstream_actors.tracing.fold.times import nanoseconds
from sandstream_bus.counts import numbered

from sandstream._inspect.rows import Call
from sandstream._inspect.texts import count, error_text
from sandstream._page.conversation import Earlier, Entry, Remark, Speech, remarks_of
from sandstream._page.text import Texts, escaped, spelled

_ROLES = {
    "user": "User",
    "system": "System",
    "developer": "Developer",
    "thinks": "Thinking",
    "output": "Output",
    "assistant": "Assistant",
    "tool": "Tool",
}
_STATES = {
    "asked": "not run",
    "running": "no result yet",
    "done": "",
    "failed": "failed",
    "rejected": "rejected",
    "handoff": "handoff",
}
_HEAD_LENGTH = 120
_DEEPEST = 30
"""Browsers limit the depth of nested elements, and deeper ones are not readable."""


class ConversationWriter:
    """Writes the conversations of a tree of runs, each child where it was called."""

    def __init__(self, told: Mapping[str, Sequence[Entry]], start_ns: int, texts: Texts) -> None:
        self._told = told
        self._start_ns = start_ns
        self._texts = texts
        self._told_of: set[str] = set()

    def html(self, run: str) -> str:
        self._told_of = {run}
        return self._entries(self._told.get(run, ()), 0)

    def _entries(self, entries: Sequence[Entry], depth: int) -> str:
        return "".join(self._entry(entry, depth) for entry in entries)

    def _entry(self, entry: Entry, depth: int) -> str:
        match entry:
            case Speech():
                return self._said(entry)
            case Call():
                return self._called(entry, depth)
            case Remark():
                return self._remark(entry)
            case Earlier():
                inside = self._entries(entry.entries, depth)
                earlier = numbered(len(entry.entries), "earlier entry", "earlier entries")
                return (
                    f'<details class="earlier"><summary>{earlier} of '
                    f"this conversation</summary>{inside}</details>"
                )

    def _said(self, said: Speech) -> str:
        role = _ROLES.get(said.role, said.role)
        who = said.who or role
        facts = [
            said.model,
            numbered(said.tokens, "token", shown=count(said.tokens)) if said.tokens else "",
        ]
        name = self._inline(who)
        if said.who and said.role != "assistant":
            name += f' <span class="role">{self._inline(role.lower())}</span>'
        body = self._block(self._texts.json_text(said.text))
        head = f"<b>{name}</b>{self._meta(facts, said.time)}"
        css = said.role if said.role in _ROLES else "other"
        if said.role == "thinks":
            return f'<details class="said thinks"><summary>{head}</summary>{body}</details>'
        return f'<article class="said {css}"><header>{head}</header>{body}</article>'

    def _called(self, call: Call, depth: int) -> str:
        error = error_text(call.error) if call.error else ""
        short = self._texts.line(call.arguments, _HEAD_LENGTH)
        if result := self._texts.line(error or call.output, _HEAD_LENGTH):
            short += f" → {result}"
        facts = [spelled(call.duration_ms * 1_000_000) if call.duration_ms else ""]
        state = _STATES[call.state]
        pill = f'<span class="state {call.state}">{state}</span>' if state else ""
        parts = [
            f'<details class="call {call.state}"><summary><span class="tool">'
            f"{self._inline(call.name)}</span>"
            f'<code class="short" dir="auto">{escaped(short)}</code>'
            f"{pill}{self._meta(facts, call.time)}</summary>"
        ]
        if call.arguments:
            parts.append(self._pre("Arguments", call.arguments))
        if error:
            parts.append(self._pre("Error", error, "error"))
        if call.output and call.output != error:
            parts.append(self._pre("Result", call.output))
        if call.child and depth < _DEEPEST:
            parts.append(self._child(call.child, depth))
        parts.append("</details>")
        parts += [self._remark(remark) for remark in remarks_of(call)]
        return "".join(parts)

    def _child(self, run: str, depth: int) -> str:
        if run in self._told_of or not self._told.get(run):
            return ""
        self._told_of.add(run)
        inside = self._entries(self._told[run], depth + 1)
        name = self._inline(run)
        return (
            f'<details class="child" data-run="{escaped(self._texts.line(run))}"><summary>'
            f"What was said in run <code>{name}</code></summary>{inside}</details>"
        )

    def _remark(self, remark: Remark) -> str:
        text = self._inline(self._texts.text(remark.text, 2000))
        return f'<p class="remark {remark.tone}"><span>{text}</span>{self._time(remark.time)}</p>'

    # --- parts ----------------------------------------------------------------------------------

    def _pre(self, title: str, text: str, css: str = "") -> str:
        shown = escaped(self._texts.json_text(text))
        return f'<h4>{title}</h4><pre class="{css}" dir="auto" tabindex="0">{shown}</pre>'

    def _block(self, text: str) -> str:
        return f'<div class="text" dir="auto">{escaped(text)}</div>'

    def _inline(self, text: str) -> str:
        return f"<bdi>{escaped(self._texts.line(text, 2000))}</bdi>"

    def _meta(self, facts: Sequence[str], time: str) -> str:
        shown = "".join(f"<span>{self._inline(fact)}</span>" for fact in facts if fact)
        return f'<span class="meta">{shown}{self._time(time)}</span>'

    def _time(self, time: str) -> str:
        if not time:
            return ""
        return f'<span class="at">+{spelled(nanoseconds(time) - self._start_ns)}</span>'
