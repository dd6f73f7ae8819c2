"""The turns of a session: go back to one, fork from one, or look at what one changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

from sandstream_bus.wire.sessions import SessionTurn
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from sandstream._inspect.texts import count
from sandstream._inspect.visible_text import one_line
from sandstream.tui.keys import bindings
from sandstream.tui.overview.entries import unmarked
from sandstream.tui.overview.rows import fit
from sandstream.tui.plain_text import line


class Chosen(NamedTuple):
    """What to do with which turn."""

    what: Literal["rewind", "fork", "diff"]
    turn: int


class TurnsScreen(ModalScreen[Chosen | None]):
    """Lists the turns, the newest selected.

    Args:
        turns: The finished turns that count, oldest first.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("turns")

    def __init__(self, turns: Sequence[SessionTurn]) -> None:
        super().__init__()
        self._turns = turns
        self._numbers = [0, *(it.number for it in turns)]

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(line("Go back to, or fork after", "bold $primary"), markup=False)
            options = [Option(line("the beginning: nothing said, the agent's own files", "dim"))]
            options += [Option(turn_row(it)) for it in self._turns]
            yield OptionList(*options, markup=False)
            hint = "Enter rewinds (files and conversation) · f forks · d shows changes"
            yield Static(line(hint, "dim"), markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        options.focus()
        options.highlighted = len(self._numbers) - 1

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_rewind()

    def _choose(self, what: Literal["rewind", "fork", "diff"]) -> None:
        place = self.query_one(OptionList).highlighted
        if place is not None:
            self.dismiss(Chosen(what, self._numbers[place]))

    def action_rewind(self) -> None:
        self._choose("rewind")

    def action_fork(self) -> None:
        self._choose("fork")

    def action_diff(self) -> None:
        self._choose("diff")

    def action_close(self) -> None:
        self.dismiss(None)


def turn_row(turn: SessionTurn) -> Content:
    """A turn as one line."""
    asked = one_line(" ".join(it.input for it in turn.input))
    style = "$success" if turn.status == "completed" else "$error"
    return Content.assemble(
        (f"{turn.number:>3} ", "bold"),
        (fit(asked, 34), ""),
        (f" {fit(turn.status, 9)} ", style),
        (f"{count(turn.usage.total_tokens):>6} ", "dim"),
        (one_line(unmarked(turn.said))[:200], "$foreground 70%"),
    )
