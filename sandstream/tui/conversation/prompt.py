"""The input: several lines, with a history, completions and keys that depend on what is typed."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import TextArea

from sandstream.tui.keys import bindings

_MOST_HISTORY = 500


class Prompt(TextArea):
    """Where people type. It posts messages; the screen acts."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("session", "send", "escape", "back")
    """For the footer: the keys themselves are handled before bindings are."""

    class Sent(Message):
        """A message is to be sent."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Typed(Message):
        """The text or the cursor has changed: completions may have."""

    class Pressed(Message):
        """A key that the screen handles: ``escape``, ``back``, ``take``, ``choose``."""

        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what

    def __init__(self) -> None:
        super().__init__(
            id="prompt",
            compact=True,
            highlight_cursor_line=False,
            placeholder="Message, /command, !shell command, @file",
        )
        self.said: list[str] = []
        self.is_choosing = False
        """Completions are shown: arrows, Enter and Tab belong to them."""
        self._place: int | None = None
        self._draft = ""

    def action_send(self) -> None:
        self.send()

    def action_escape(self) -> None:
        self.post_message(self.Pressed("escape"))

    def action_back(self) -> None:
        self.post_message(self.Pressed("back"))

    async def _on_key(self, event: events.Key) -> None:
        handled = self._handle(event.key)
        if handled:
            event.prevent_default()
            event.stop()
            return
        await super()._on_key(event)

    def _handle(self, key: str) -> bool:
        """Act on a key; False: it is an ordinary one."""
        match key:
            case "enter" if self.is_choosing and self._is_slash_open():
                self.post_message(self.Pressed("take_or_send"))
            case "enter" if self.is_choosing:
                self.post_message(self.Pressed("take"))
            case "enter":
                self.send()
            case "shift+enter" | "ctrl+j" | "alt+enter":
                self.insert("\n")
            case "tab" if self.is_choosing:
                self.post_message(self.Pressed("take"))
            case "tab":
                word, _ = self.word_at_cursor()
                if not word.startswith(("@", "/")):  # a completion that was not found is not sent
                    self.send()
            case "escape":
                self.post_message(self.Pressed("escape"))
            case "left" if not self.text:
                self.post_message(self.Pressed("back"))
            case "up" | "down" if self.is_choosing:
                self.post_message(self.Pressed(key))
            case "up" if self.cursor_location[0] == 0:
                return self._recall(-1)
            case "down" if self.cursor_location[0] == self.document.line_count - 1:
                return self._recall(1)
            case "question_mark" if not self.text:
                self.post_message(self.Pressed("help"))
            case _:
                return False
        return True

    def _is_slash_open(self) -> bool:
        return self.text.startswith("/") and " " not in self.text

    def send(self) -> None:
        """Post the text, and begin an empty one."""
        text = self.text.strip()
        if not text:
            return
        if not self.said or self.said[-1] != text:
            self.said = [*self.said[-_MOST_HISTORY:], text]
        self._place = None
        self.clear()
        self.post_message(self.Sent(text))

    def _recall(self, step: int) -> bool:
        if not self.said or (self._place is None and step > 0):
            return False
        if self._place is None:
            self._draft = self.text
            place = len(self.said) - 1
        else:
            place = self._place + step
        if place >= len(self.said):
            self._place = None
            self._set(self._draft)
        elif place >= 0:
            self._place = place
            self._set(self.said[place])
        return True

    def _set(self, text: str) -> None:
        self.load_text(text)
        self.move_cursor(self.document.end)

    def on_text_area_changed(self) -> None:
        self.post_message(self.Typed())

    def on_text_area_selection_changed(self) -> None:
        self.post_message(self.Typed())

    def word_at_cursor(self) -> tuple[str, int]:
        """The word before the cursor, and the column where it begins."""
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        start = max(before.rfind(it) for it in (" ", "\t")) + 1
        return before[start:], start

    def replace_word(self, text: str) -> None:
        """Put a completion in the place of the word before the cursor."""
        row, column = self.cursor_location
        _, start = self.word_at_cursor()
        self.replace(text, (row, start), (row, column))
