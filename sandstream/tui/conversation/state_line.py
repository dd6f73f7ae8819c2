"""The line below the input: where the session is and what it costs. Pure."""

from __future__ import annotations

from textual.content import Content

from sandstream._inspect.summaries import RunSummary
from sandstream._inspect.texts import count
from sandstream._inspect.visible_text import one_line
from sandstream.sessions import SessionInfo
from sandstream.tui.conversation.call_text import shortened
from sandstream.tui.theme import MARKS, STYLES

_BOXES = {"none": "no box", "open": "box open", "closing": "box closing", "asleep": "box asleep"}
Part = tuple[str, str]


def session_line(
    info: SessionInfo, *, asks: str = "", sequence: int, took_over: str, width: int
) -> Content:
    """The state of a session, as much as fits.

    Args:
        info: The session.
        asks: The call that waits for a person; empty: none, or it is not known yet.
        sequence: The last event of the log that is shown.
        took_over: The process that took over last; empty: none.
        width: The columns that there are.
    """
    parts: list[Part] = [
        (f"{MARKS.get(info.activity, '·')} {info.activity}", STYLES.get(info.activity, ""))
    ]
    number = info.active.number if info.active else info.turn
    doing = one_line(info.doing)
    if asks and info.activity == "needs you":
        doing = shortened(asks, width // 2)  # what follows it must have room
    if doing and doing != f"turn {number}":
        parts.append((doing, "$foreground 80%"))
    if info.trouble:
        parts.append((one_line(info.trouble), "$error"))
    if info.switching_to:
        parts.append((f"moves to {one_line(info.switching_to)}", "$warning"))
    if took_over:
        parts.append((f"{one_line(took_over)} took over", "$warning"))
    if info.queue:
        parts.append((f"{len(info.queue)} queued", "$warning"))
    if number:
        parts.append((f"turn {number}", "dim"))
    if info.provider:
        parts.append((f"{one_line(info.provider)}, {_BOXES[info.box]}", "dim"))
    parts.append((f"{count(info.usage.total_tokens)} tokens", "dim"))
    parts.append((f"#{sequence}", "dim"))
    return joined(parts, width)


def run_line(
    summary: RunSummary | None, *, asks: str = "", sequence: int, took_over: str, width: int
) -> Content:
    """The state of a run, as much as fits.

    Args:
        summary: The run; None: it is not known yet.
        asks: The call that waits for a person; empty: none, or it is not known yet.
        sequence: The last event of the log that is shown.
        took_over: The process that took over last; empty: none.
        width: The columns that there are.
    """
    if summary is None:
        return joined([("reads the log", "dim"), (f"#{sequence}", "dim")], width)
    state = {"running": "working", "waiting": "needs you", "completed": "done"}.get(
        summary.status, summary.status
    )
    parts: list[Part] = [(f"{MARKS.get(state, '✗')} {state}", STYLES.get(state, "$error"))]
    if doing := shortened(asks, width // 2) or one_line(summary.step):
        parts.append((doing, "$foreground 80%"))
    if took_over:
        parts.append((f"{one_line(took_over)} took over", "$warning"))
    parts.append((f"turn {summary.turns}", "dim"))
    parts.append((f"{count(summary.usage.total_tokens)} tokens", "dim"))
    parts.append((f"#{sequence}", "dim"))
    return joined(parts, width)


def joined(parts: list[Part], width: int) -> Content:
    """The parts with dots between them. What does not fit is left out from the end, but the last
    one, the place in the log, stays.
    """
    shown: list[Part] = []
    *front, last = parts
    room = width - len(last[0]) - 3
    for text, style in front:
        if len(text) + 3 > room:
            if not shown and room > 8:
                shown.append((text[: room - 4] + "…", style))
            break
        shown.append((text, style))
        room -= len(text) + 3
    shown.append(last)
    pieces: list[str | Part] = []
    for place, part in enumerate(shown):
        pieces += [(" · ", "dim"), part] if place else [part]
    return Content.assemble(*pieces)
