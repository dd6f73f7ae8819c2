"""The messages that wait for a turn: edit and remove them before a turn takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from sandstream.exceptions import UserError
from sandstream.tui.dialogs import TextDialog
from sandstream.tui.keys import bindings
from sandstream.tui.plain_text import line

if TYPE_CHECKING:
    from sandstream.tui.conversation.screen import WorkScreen


class QueueScreen(ModalScreen[None]):
    """The queue of a session; it follows the state.

    Args:
        owner: The screen of the session.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("queue")

    def __init__(self, owner: WorkScreen) -> None:
        super().__init__()
        self._owner = owner
        self._shown: list[tuple[str, str]] | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(line("Waiting messages", "bold $primary"), markup=False)
            yield OptionList(markup=False)
            yield Static(line("Enter edits · d removes · Esc closes", "dim"), markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._look()
        self.set_interval(0.2, self._look)
        self.query_one(OptionList).focus()

    def _look(self) -> None:
        waiting = self._owner.info.queue if self._owner.info else []
        found = [(it.id, it.input) for it in waiting]
        if found == self._shown:
            return
        self._shown = found
        options = self.query_one(OptionList)
        place = options.highlighted or 0
        shown = [Option(line(f"{n}. {text}")) for n, (_, text) in enumerate(found, 1)]
        options.set_options(shown or [Option(line("nothing waits"), disabled=True)])
        options.highlighted = min(place, len(found) - 1) if found else None

    def _current(self) -> tuple[str, str] | None:
        place = self.query_one(OptionList).highlighted
        return self._shown[place] if self._shown and place is not None else None

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_edit()

    @work(group="queue")
    async def action_edit(self) -> None:
        if (current := self._current()) is None:
            return
        text = await self.app.push_screen_wait(TextDialog("Edit the message", current[1]))
        if text:
            await self._ask(self._owner.work.session().edit(current[0], text))

    @work(group="queue")
    async def action_remove(self) -> None:
        if (current := self._current()) is not None:
            await self._ask(self._owner.work.session().remove(current[0]))

    async def _ask(self, request) -> None:  # type: ignore[no-untyped-def]
        try:
            await request
        except UserError as error:
            self._owner.complain(error)

    def action_close(self) -> None:
        self.dismiss(None)
