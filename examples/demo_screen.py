"""How the demo talks: scenes, and one line for each message on the bus."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from typing import Any

WIDTH = 100
_COLOURS = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_WHO = {
    "client": "yellow",
    "harness": "cyan",
    "worker": "green",
    "sandbox": "green",
    "model": "dim",
}
_SUBJECT_WIDTH = 36


class Screen:
    """Writes to stdout. Colours on a terminal, unless NO_COLOR is set."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self._coloured = self.is_terminal and "NO_COLOR" not in os.environ
        self._began = time.monotonic()
        self._words: list[str] = []

    def paint(self, colour: str, text: str) -> str:
        return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if self._coloured else text

    def scene(self, title: str, *lines: str) -> None:
        """A heading, and what is about to happen."""
        self._put(f"\n{self.paint('bold', '── ' + title + ' ' + '─' * (WIDTH - len(title) - 4))}")
        self.say(*lines)
        self._began = time.monotonic()

    def say(self, *lines: str) -> None:
        for line in lines:
            for part in textwrap.wrap(line, WIDTH - 2) or [""]:
                self._put(f"  {part}")

    def item(self, name: str, meaning: str) -> None:
        self._put(f"  {self.paint('cyan', f'{name:42}')} {meaning}")

    def alarm(self, text: str) -> None:
        self._put(f"  {self.paint('red', '✗ ' + text)}")

    def good(self, text: str) -> None:
        self._put(f"  {self.paint('green', '✓ ' + text)}")

    def columns(self) -> None:
        heading = f"  {'time':>6}  {'subject':{_SUBJECT_WIDTH}} {'from':8} what it says"
        self._put(self.paint("dim", heading))

    def message(self, subject: str, data: bytes) -> None:
        """One line for one message."""
        said = json.loads(data)
        if subject.endswith(".delta"):
            self._delta(subject, said["event"])
            return
        who, what = explain(subject, said)
        self._end_words()
        self._line(subject, who, what)

    def overwrite(self, text: str) -> None:
        """A line that the next one replaces; nothing where that cannot be done."""
        if self.is_terminal:
            sys.stdout.write(f"\r\x1b[K  {text}" if text else "\r\x1b[K")
            sys.stdout.flush()

    def _line(self, subject: str, who: str, what: str, end: str = "\n") -> None:
        at = f"{time.monotonic() - self._began:5.2f}s"
        room = WIDTH - 2 - 6 - 2 - _SUBJECT_WIDTH - 1 - 8 - 1
        short = textwrap.shorten(what, room, placeholder=" …")
        if len(subject) > _SUBJECT_WIDTH:
            subject = subject[: _SUBJECT_WIDTH - 1] + "…"
        name = self.paint(_WHO[who], f"{who:8}")
        self._put(f"  {self.paint('dim', at)}  {subject:{_SUBJECT_WIDTH}} {name} {short}", end)

    def _delta(self, subject: str, event: dict[str, Any]) -> None:
        if event["type"] != "response.output_text.delta":
            return
        self._words.append(event["delta"])
        if self.is_terminal:
            sys.stdout.write("\r\x1b[K")
            self._line(subject, "model", "".join(self._words)[-42:], end="")

    def _end_words(self) -> None:
        if not self._words:
            return
        if self.is_terminal:
            self.overwrite("")
        count = len(self._words)
        self._words.clear()
        note = f"{count} pieces of text, live, never stored"
        self._line("sandstream.live.….delta", "model", note)

    def _put(self, text: str, end: str = "\n") -> None:
        sys.stdout.write(text + end)
        sys.stdout.flush()


_COMMAND = "Chunk ID:"
"""How what a model reads about a command begins."""


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
