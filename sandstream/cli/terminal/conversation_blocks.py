"""What was said, as blocks with the speaker beside the text: for ``show`` and ``conversations``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from sandstream_bus.counts import numbered

from sandstream._inspect.rows import item_of
from sandstream.cli.terminal.mask import masked, masked_line
from sandstream.cli.terminal.render import Screen, columns_of, pad, shorten, size
from sandstream.cli.terminal.talk import Said, said_of

ROLE_WIDTH = 10
_MOST_WHO = 18
_WIDEST = 140
_MOST_LINES = {"user": 40, "agent": 60, "error": 20}
_FEW_LINES = 8
"""How many lines of a tool's arguments and output are shown."""
_MOST_SAID = 200
_FIRST_SAID = 80
_STYLES = {
    "user": "bold blue",
    "agent": "bold green",
    "thought": "dim",
    "call": "bold green",
    "result": "magenta",
    "approval": "bold yellow",
    "handoff": "bold cyan",
    "note": "dim",
    "error": "bold red",
}
_TEXT_STYLES = {
    "thought": "dim",
    "call": "magenta",
    "handoff": "cyan",
    "note": "dim",
    "error": "red",
}
_BRIEF = ("result", "approval", "handoff", "note")
"""Kinds of messages whose details stand beside the text if there is room."""
_MARKS = {"call": "→ ", "result": "← ", "thought": "(thinks) "}


def print_items(screen: Screen, items: list[Any]) -> None:
    """Items of the Responses API, each as a block."""
    said: list[Said] = []
    names: dict[str, str] = {}
    for item in (item_of(it) for it in items if isinstance(it, dict)):
        if item.name:
            names[item.call_id] = item.name
        said.extend(said_of(item, "assistant"))
    for one in said:
        if one.kind == "result":
            one.who = names.get(one.who, one.who)
    print_said(screen, said)


def print_said(screen: Screen, said: list[Said], *, show_all: bool = False) -> None:
    """Print the messages. Long texts and the middle of long conversations are cut, with a note."""
    if not show_all and len(said) > _MOST_SAID:
        hidden = len(said) - _MOST_SAID
        note = Said(who="…", kind="note", text=f"{numbered(hidden, 'more such block')} (--all)")
        said = [*said[:_FIRST_SAID], note, *said[_FIRST_SAID + hidden :]]
    names = [columns_of(masked_line(one.who)) for one in said]
    margin = max(ROLE_WIDTH, min(_MOST_WHO, max(names, default=0) + 2))
    before: Said | None = None
    for one in said:
        is_same = before is not None and (before.who, before.about) == (one.who, "")
        label = "" if is_same else shorten(masked_line(one.who), margin - 1)
        style = "red" if one.is_bad and one.kind == "result" else _STYLES[one.kind]
        for line in _lines(screen, one, margin, show_all):
            screen.line((screen.paint(pad(label, margin), style) + line).rstrip())
            label = ""
        before = one


def _lines(screen: Screen, one: Said, margin: int, show_all: bool) -> Iterator[str]:
    width = max(20, min(screen.width, _WIDEST) - margin)
    most = 0 if show_all else _MOST_LINES.get(one.kind, _FEW_LINES)
    style = "red" if one.is_bad and one.kind != "approval" else _TEXT_STYLES.get(one.kind, "")
    lines, cut = wrapped(_MARKS.get(one.kind, "") + masked(one.text), width, most)
    about = masked(one.about)
    if cut:
        about = f"… {cut} more (--all)" + (f" · {about}" if about else "")
    is_one_line = len(lines) == 1 and one.kind in _BRIEF
    if is_one_line and about and columns_of(lines[0]) + columns_of(about) + 2 <= width:
        yield f"{screen.paint(lines[0], style)}  {screen.paint(about, _about_style(one))}"
        return
    for line in lines:
        yield screen.paint(line, style)
    if about:
        for line in wrapped(about, width, 0)[0]:
            yield screen.paint(line, _about_style(one))


def _about_style(one: Said) -> str:
    if one.kind != "approval":
        return "dim"
    return "red" if one.is_bad else "yellow"


def wrapped(text: str, width: int, most: int) -> tuple[list[str], str]:
    """The text in lines that fit, at most so many (0: all), and how much was cut."""
    shown = text[: most * width] if most else text
    lines: list[str] = []
    for paragraph in shown.expandtabs(4).splitlines() or [""]:
        lines.extend(_wrap(paragraph, width))
    if not most or (len(lines) <= most and len(shown) == len(text)):
        return lines, ""
    kept = lines[:most]
    missing = text[-max(1, len(text) - sum(len(line) + 1 for line in kept)) :].rstrip()
    amount = size(len(missing.encode("utf-8", "replace")))
    breaks = missing.count("\n")
    return kept, f"{numbered(breaks + 1, 'line')}, {amount}" if breaks else amount


def _wrap(paragraph: str, width: int) -> list[str]:
    if columns_of(paragraph) <= width:
        return [paragraph]
    if paragraph.isascii():
        return textwrap.wrap(paragraph, width, replace_whitespace=False) or [""]
    lines = [""]
    room = width
    for char in paragraph:
        columns = columns_of(char)
        if columns > room:
            head, space, tail = lines[-1].rpartition(" ")
            if space and head:
                lines[-1] = head
                lines.append(tail)
            else:
                lines.append("")
            room = width - columns_of(lines[-1])
        lines[-1] += char
        room -= columns
    return lines
