"""The output of the demo: scenes, and one line for each message on the bus."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from typing import Any

_WIDTH_ELSEWHERE = 100
"""Columns, if the output is not a terminal."""
_NARROWEST, _WIDEST = 60, 200
_WIDEST_PROSE = 100
_ROOMY = 100
"""From this width on, whole subjects fit, and the meaning of a name beside it."""
_PREFIX = "sandstream."
_SUBJECT_WIDTH = 36
_NAME_WIDTH = 42
_INDENT = "  "
_COLOURS = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_WHO = {
    "client": "yellow",
    "harness": "cyan",
    "worker": "green",
    "sandbox": "green",
    "model": "dim",
}


class Screen:
    """Writes to stdout. Uses colours on a terminal, unless NO_COLOR is set.

    No line is wider than the terminal, so each takes one row. On a terminal there may be a passing
    line below the last one (a countdown, a growing answer). It is erased before another line is
    written, and drawn again after it.
    """

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self._coloured = self.is_terminal and "NO_COLOR" not in os.environ
        self._began = time.monotonic()
        self._words: list[str] = []
        self._passing = ""

    @property
    def width(self) -> int:
        """Read for each line, because the window may be resized."""
        if not self.is_terminal:
            return _WIDTH_ELSEWHERE
        columns = os.get_terminal_size(sys.stdout.fileno()).columns or _WIDTH_ELSEWHERE
        return min(max(columns, _NARROWEST), _WIDEST)

    def paint(self, colour: str, text: str) -> str:
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self._coloured else text

    def scene(self, title: str, *lines: str) -> None:
        """A heading, and what is about to happen."""
        self._put("")
        self._put(self.paint("bold", f"── {title} ".ljust(self.width, "─")))
        self.say(*lines)
        self._began = time.monotonic()

    def say(self, *lines: str) -> None:
        for line in lines:
            for part in self._wrap(line) or [""]:
                self._put(f"{_INDENT}{part}")

    def item(self, name: str, meaning: str) -> None:
        """A name and its meaning: beside it, or below it if there is no room."""
        shown = self.paint("cyan", name)
        if self.width >= _ROOMY:
            padding = " " * (_NAME_WIDTH - len(name))
            self._put(f"{_INDENT}{shown}{padding} {meaning}")
            return
        self._put(f"{_INDENT}{shown}")
        for part in self._wrap(meaning, indent=3 * len(_INDENT)):
            self._put(f"{3 * _INDENT}{part}")

    def alarm(self, text: str) -> None:
        self._marked("red", "✗", text)

    def good(self, text: str) -> None:
        self._marked("green", "✓", text)

    def columns(self) -> None:
        subject = "subject" if self.width >= _ROOMY else f"{_PREFIX}…"
        heading = f"  {'time':>6}  {subject:{self._subject_width}} {'from':8} what it says"
        self._put(self.paint("dim", heading))

    def message(self, subject: str, data: bytes) -> None:
        """One line for one message."""
        said = json.loads(data)
        if subject.endswith(".delta"):
            self._delta(subject, said["event"])
            return
        who, what = explain(subject, said)
        self._end_words()
        self._put(self._row(subject, who, what))

    def passing(self, text: str) -> None:
        """Show this below all other lines until it changes; "" removes it. Only on a terminal."""
        room = self.width - len(_INDENT)
        self._show(self.paint("dim", f"{_INDENT}{_cut(text, room)}") if text else "")

    def _marked(self, colour: str, mark: str, text: str) -> None:
        first, *more = self._wrap(text, indent=2 * len(_INDENT))
        self._put(f"{_INDENT}{self.paint(colour, f'{mark} {first}')}")
        for part in more:
            self._put(f"{2 * _INDENT}{self.paint(colour, part)}")

    def _wrap(self, text: str, indent: int = len(_INDENT)) -> list[str]:
        width = min(self.width, _WIDEST_PROSE) - indent
        return [part for line in text.splitlines() for part in textwrap.wrap(line, width)]

    @property
    def _subject_width(self) -> int:
        return _SUBJECT_WIDTH if self.width >= _ROOMY else _SUBJECT_WIDTH - len(_PREFIX)

    def _row(self, subject: str, who: str, what: str) -> str:
        at = f"{time.monotonic() - self._began:5.2f}s"
        if self.width < _ROOMY:
            subject = subject.removeprefix(_PREFIX)
        wide = self._subject_width
        start = f"  {self.paint('dim', at)}  {_cut(subject, wide):{wide}} "
        room = self.width - 2 - 6 - 2 - wide - 1 - 8 - 1
        return f"{start}{self.paint(_WHO[who], f'{who:8}')} {_cut(' '.join(what.split()), room)}"

    def _delta(self, subject: str, event: dict[str, Any]) -> None:
        if event["type"] != "response.output_text.delta":
            return
        self._words.append(event["delta"])
        self._show(self._row(subject, "model", "".join(self._words)[-_SUBJECT_WIDTH:]))

    def _end_words(self) -> None:
        if not self._words:
            return
        count = len(self._words)
        self._words.clear()
        self._show("")
        note = f"{count} pieces of text, never stored"
        self._put(self._row("sandstream.live.….delta", "model", note))

    def _show(self, passing: str) -> None:
        if self.is_terminal:
            sys.stdout.write(f"\r\x1b[K{passing}")
            sys.stdout.flush()
            self._passing = passing

    def _put(self, text: str) -> None:
        """Write a permanent line."""
        if self._passing:
            sys.stdout.write(f"\r\x1b[K{text}\n{self._passing}")
        else:
            sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(0, room - 1)] + "…"


_COMMAND = "Chunk ID:"
"""The beginning of the text that a model reads about a command."""


def explain(subject: str, said: dict[str, Any]) -> tuple[str, str]:
    """Who published this message, and what it says."""
    if ".task." in subject:
        return "client", f"a task: {said['input']}"
    kind = said.get("kind", "tool")
    match said["type"]:
        case "call.requested" if kind != "tool":
            return "harness", f"please {kind} its sandbox"
        case "call.finished" if kind != "tool":
            return "sandbox", "it is open" if kind == "open" else "saved and closed"
        case "call.finished" if said["output"].startswith(_COMMAND):
            return "sandbox", f"it said: {said['output'].partition('Output:')[2]}"
        case "run.started":
            return "harness", "the task becomes a run"
        case "model.answered":
            return "harness", _answer(said["output"])
        case "call.requested":
            return "harness", f"please call {said['name']}({_arguments(said['arguments'])})"
        case "call.finished":
            return "worker", f"its result: {said['output']}"
        case "run.done":
            return "harness", f"{said['status']} after {said['turns']} turns"
        case other:
            return "harness", other


def _answer(items: list[dict[str, Any]]) -> str:
    calls = [item["name"] for item in items if item["type"] == "function_call"]
    if calls:
        return f"the model wants {' and '.join(calls)}"
    texts = [part["text"] for item in items for part in item.get("content", []) if "text" in part]
    return f"the model says: {' '.join(texts)}"


def _arguments(text: str) -> str:
    return ", ".join(str(value) for value in json.loads(text).values())
