"""Sessions as text: facts about one, colours of what they do."""

from __future__ import annotations

from collections.abc import Iterator

from sandstream_bus.counts import numbered

from sandstream._inspect.texts import error_text, usage_text
from sandstream.cli.terminal.render import Screen, age, clean, one_line, out, pad
from sandstream.sessions.views import SessionInfo

STYLES = {
    "needs you": "bold yellow",
    "working": "cyan",
    "waiting": "yellow",
    "failed": "red",
    "idle": "green",
    "paused": "yellow",
    "sleeping": "dim",
    "archived": "dim",
    "destroyed": "dim",
}
_NAME_WIDTH = 10


def state_text(info: SessionInfo) -> str:
    """What a session does now, with details."""
    return f"{info.activity}: {info.doing}" if info.doing else info.activity


def workspace_text(info: SessionInfo) -> str:
    """Where the files of a session are."""
    if not info.provider:
        return ""
    box = {"none": "no box yet", "open": "open", "closing": "is put to sleep", "asleep": "asleep"}
    moving = f", moves to {info.switching_to}" if info.switching_to else ""
    return f"{info.provider} ({box[info.box]}{moving}), sandbox {info.sandbox}"


def facts(info: SessionInfo) -> Iterator[tuple[str, str]]:
    """What is worth knowing about a session, by name."""
    yield "session", info.id
    yield "title", one_line(info.title)
    yield "agent", info.agent
    yield "now", one_line(state_text(info))
    yield "workspace", workspace_text(info)
    yield "turns", f"{info.turn} ({info.status.replace('_', ' ')})" if info.turn else ""
    yield "queue", numbered(len(info.queue), "message") if info.queue else ""
    yield "tokens", usage_text(info.usage) if info.usage.total_tokens else ""
    if info.origin is not None:
        yield "fork of", f"{info.origin.session}, after turn {info.origin.turn}"
    never = "never" if info.idle_s is None else f"after {info.idle_s:g} s without work"
    yield "sleeps", never if info.provider else ""
    yield "takes", "one message a turn" if info.take == "one" else ""
    yield "created", f"{age(info.created)} ago" if info.created else ""
    yield "changed", f"{age(info.changed)} ago" if info.changed else ""
    yield "trouble", one_line(info.trouble)
    if info.refusal is not None:
        yield "refused", one_line(f"{info.refusal.kind}: {error_text(info.refusal.error)}")


def put_facts(screen: Screen, info: SessionInfo) -> None:
    """The facts, a line each."""
    for name, value in facts(info):
        if value:
            style = "bold" if name == "session" else STYLES[info.activity] if name == "now" else ""
            screen.line(
                screen.paint(pad(name, _NAME_WIDTH), "dim") + screen.paint(clean(value), style)
            )


def put_said(text: str) -> None:
    """What an agent said: clean on a terminal, as it is for a program."""
    screen = out()
    if screen.is_terminal:
        screen.line(clean(text))
    else:
        screen.put(text)
