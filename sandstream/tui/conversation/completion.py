"""The list above the input: slash commands, or files of the sandbox."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from sandstream.tui.conversation.slash import Command
from sandstream.tui.plain_text import line

MOST = 8


class Completion(OptionList, can_focus=False):
    """What the typed beginning can mean."""

    def __init__(self) -> None:
        super().__init__(id="completion", markup=False, compact=True)
        self.values: list[str] = []
        """What each option puts into the input."""
        self.display = False

    def offer(self, choices: list[tuple[str, Content]]) -> None:
        """Show these, or nothing.

        Args:
            choices: What each one puts into the input, and how it is shown.
        """
        values = [value for value, _ in choices]
        self.display = bool(choices)
        if values == self.values:
            return
        self.values = values
        self.set_options([Option(shown) for _, shown in choices])
        self.highlighted = 0 if choices else None

    def move(self, step: int) -> None:
        """Select another one.

        Args:
            step: -1 or 1.
        """
        if self.values:
            self.highlighted = ((self.highlighted or 0) + step) % len(self.values)

    @property
    def chosen(self) -> str | None:
        """What the selected one puts into the input."""
        if not self.display or self.highlighted is None or not self.values:
            return None
        return self.values[self.highlighted]


def command_choices(commands: list[Command]) -> list[tuple[str, Content]]:
    """Slash commands, as they are offered."""
    return [
        (
            f"/{it.name} " if it.arguments else f"/{it.name}",
            Content.assemble((f"{it.usage:<36}", "bold"), (f" {it.does}", "dim")),
        )
        for it in commands[:MOST]
    ]


def file_choices(files: list[str], wanted: str) -> list[tuple[str, Content]]:
    """Files of the sandbox, as they are offered; the best matches first."""
    found = sorted((score, it) for it in files if (score := fuzzy(it, wanted)) is not None)
    return [(f"@{it} ", line(it)) for _, it in found[:MOST]]


def fuzzy(path: str, wanted: str) -> tuple[int, int] | None:
    """How well a path fits, less is better; None: the letters are not in it in this order."""
    text, letters = path.casefold(), wanted.casefold()
    if not letters:
        return (path.count("/"), len(path))
    name = text.rpartition("/")[2]
    if name.startswith(letters):
        return (0, len(path))
    if letters in text:
        return (1, len(path))
    place = -1
    for letter in letters:
        place = text.find(letter, place + 1)
        if place < 0:
            return None
    return (2, len(path))
