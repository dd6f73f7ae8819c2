"""The list of sessions and runs, as data: groups, trees, filters. Pure; knows no screen."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from sandstream._inspect.summaries import RunSummary
from sandstream._inspect.texts import value_text
from sandstream._inspect.visible_text import one_line
from sandstream.sessions.views import SessionInfo

_MARKS = re.compile(r"\|?-{3,}\|?|[*`|]+|^#+ ", re.MULTILINE)
_SPACES = re.compile(r"\s+")
_GENERATED = re.compile(r"r[0-9a-f]{21}(?![0-9a-f])")
"""How the id of a run without a key begins: it tells people nothing."""
GroupBy = Literal["state", "agent", "provider"]
GROUP_BY: tuple[GroupBy, ...] = ("state", "agent", "provider")
STATES = ("needs you", "working", "asleep", "done", "failed")
HEADINGS = {
    "needs you": "Needs you",
    "working": "Working",
    "asleep": "Idle and sleeping",
    "done": "Done",
    "failed": "Failed",
}
MOST_LINES = 500
"""The most lines of a group. Each change formats all lines again: ten thousand would take a second,
in which no key has an effect.
"""
SESSION_CONVERSATION = "@/"
"""How the conversations of durable sessions begin: their runs are shown as turns of the session."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the list. Its texts are foreign."""

    id: str
    kind: Literal["session", "run"]
    title: str
    state: str
    """What it does, in a word."""
    group: str
    """One of ``STATES``."""
    doing: str = ""
    """What it does now, or what it came to."""
    agent: str = ""
    provider: str = ""
    tokens: int = 0
    changed: str = ""
    """When it last changed, in RFC 3339."""
    parent: str = ""
    """The entry that it stands below, if that is in the same group."""
    fork_of: str = ""
    questions: int = 0
    run: str = ""
    """The run at work; of a run itself."""


class Heading(msgspec.Struct, frozen=True):
    """The line above a group."""

    text: str
    count: int


class Line(msgspec.Struct, frozen=True):
    """An entry and how it is indented."""

    entry: Entry
    prefix: str


def entries_of(
    sessions: Iterable[SessionInfo],
    runs: Iterable[RunSummary],
    *,
    doing: Mapping[str, str] | None = None,
    asked: Mapping[str, str] | None = None,
) -> list[Entry]:
    """All entries. Runs that are turns of sessions are left out, the runs below them are not.

    Args:
        sessions: The sessions.
        runs: The runs at work and those that ended lately.
        doing: What runs do or ask now, by their ids.
        asked: What runs were asked to do, by their ids.
    """
    doing, asked = doing or {}, asked or {}
    known = [it for it in sessions if it.life != "destroyed"]
    turns = {it.active.run: it.id for it in known if it.active is not None}
    found = [_of_session(it, doing) for it in known]
    every = list(runs)
    of_sessions = {
        it.run_id for it in every if it.session.partition("=")[2].startswith(SESSION_CONVERSATION)
    } | {it.run_id for it in every if it.session.startswith(SESSION_CONVERSATION)}
    for run in every:
        if run.run_id in turns or run.run_id in of_sessions:
            continue
        if run.parent and run.is_over:
            continue  # its result is in the run above
        found.append(
            _of_run(run, turns.get(run.parent, run.parent), doing, asked.get(run.run_id, ""))
        )
    return found


def _of_session(info: SessionInfo, now: Mapping[str, str]) -> Entry:
    group = {
        "needs you": "needs you",
        "working": "working",
        "waiting": "working",
        "failed": "failed",
        "archived": "done",
    }.get(info.activity, "asleep")
    doing = info.doing or unmarked(info.said)
    if info.activity in ("working", "needs you") and info.active is not None:
        doing = now.get(info.active.run, "") or doing
    if info.queue:
        doing = f"{doing} · {len(info.queue)} queued" if doing else f"{len(info.queue)} queued"
    return Entry(
        id=info.id,
        kind="session",
        title=info.title or info.id,
        state=info.activity,
        group=group,
        doing=doing,
        agent=info.agent,
        provider=info.provider,
        tokens=info.usage.total_tokens,
        changed=info.changed or info.created,
        parent=info.origin.session if info.origin else "",
        fork_of=info.origin.session if info.origin else "",
        questions=1 if info.activity == "needs you" else 0,
        run=info.active.run if info.active else "",
    )


def _of_run(run: RunSummary, parent: str, now: Mapping[str, str], asked: str) -> Entry:
    state, group = {
        "running": ("working", "working"),
        "waiting": ("needs you", "needs you"),
        "completed": ("done", "done"),
        "cancelled": ("cancelled", "done"),
    }.get(run.status, ("failed", "failed"))
    if not run.is_over:
        doing = now.get(run.run_id, "") or run.step
    elif run.error is not None:
        doing = run.error.message
    else:
        doing = "" if run.output is None else unmarked(value_text(run.output))
    return Entry(
        id=run.run_id,
        kind="run",
        title=(asked if _GENERATED.match(run.run_id) else "") or run.run_id,
        state=state,
        group=group,
        doing=doing,
        agent=run.agent,
        tokens=run.usage.total_tokens,
        changed=run.ended_at or run.started_at,
        parent=parent,
        questions=run.approvals,
        run=run.run_id,
    )


def unmarked(text: str) -> str:
    """Markdown as one plain line: lists have no room for its marks.

    Args:
        text: What an agent said.
    """
    return _SPACES.sub(" ", _MARKS.sub("", text)).strip()


def matches(entry: Entry, wanted: str) -> bool:
    """Whether all words are in the texts of the entry."""
    parts = (entry.title, entry.id, entry.agent, entry.provider, entry.state, entry.doing)
    text = " ".join(parts).casefold()
    return all(word in text for word in wanted.casefold().split())


def listed(
    entries: Sequence[Entry], *, by: GroupBy = "state", wanted: str = "", most: int = MOST_LINES
) -> list[Heading | Line]:
    """The lines of the list: groups, and in them trees, the newest first. A long group ends with
    a heading that has the number of the lines left out; the filter looks through all of them.
    """
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        if matches(entry, wanted):
            groups.setdefault(_group(entry, by), []).append(entry)
    order = [it for it in STATES if it in groups] if by == "state" else sorted(groups)
    lines: list[Heading | Line] = []
    for name in order:
        lines.append(Heading(HEADINGS.get(name, name), len(groups[name])))
        tree = _tree(groups[name])
        lines.extend(tree[:most])
        if len(tree) > most:
            lines.append(Heading("Older ones; / finds them", len(tree) - most))
    return lines


def _group(entry: Entry, by: GroupBy) -> str:
    match by:
        case "state":
            return entry.group
        case "agent":
            return one_line(entry.agent) or "no agent"
        case "provider":
            return one_line(entry.provider) or "no sandbox"


def _tree(entries: list[Entry]) -> list[Line]:
    known = {it.id for it in entries}
    below: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda it: it.changed, reverse=True):
        above = entry.parent if entry.parent in known and entry.parent != entry.id else ""
        below.setdefault(above, []).append(entry)
    lines: list[Line] = []
    seen: set[str] = set()
    waiting = [(it, "", "") for it in reversed(below.get("", ()))]  # no recursion: forks go deep
    while waiting:
        entry, branch, prefix = waiting.pop()
        seen.add(entry.id)
        lines.append(Line(entry, branch))
        children = [it for it in below.get(entry.id, ()) if it.id not in seen]
        for place, child in reversed(list(enumerate(children, 1))):
            ends = ("└ ", "  ") if place == len(children) else ("├ ", "│ ")
            waiting.append((child, prefix + ends[0], prefix + ends[1]))
    for entry in entries:  # a circle of parents, which only a broken log has
        if entry.id not in seen:
            seen.add(entry.id)
            lines.append(Line(entry, ""))
    return lines
