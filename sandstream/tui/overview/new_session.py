"""The dialog that starts a session: which agent, and what to say first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from sandstream.tui.plain_text import line


class Wanted(NamedTuple):
    """The session to start."""

    agent: str
    title: str
    message: str
    is_opened: bool


class NewSession(ModalScreen[Wanted | None]):
    """Asks for the agent and the first message.

    Args:
        agents: The names of the deployed agents.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel"),
        Binding("ctrl+s", "stay", "Start and stay here"),
    ]

    def __init__(self, agents: Sequence[str]) -> None:
        super().__init__()
        self._agents = sorted(agents)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(line("New session", "bold"), markup=False)
            if self._agents:
                yield OptionList(*(Option(line(it)) for it in self._agents), markup=False)
            else:
                text = "no agent is deployed: start one with `sandstream up app.py`"
                yield Static(line(text, "$warning"), markup=False)
            yield Input(placeholder="First message; empty: none yet", id="first-message")
            hint = "Enter starts and opens it · Ctrl+S starts it and stays here"
            yield Static(line(hint, "dim"), markup=False)

    def on_mount(self) -> None:
        if self._agents:
            options = self.query_one(OptionList)
            options.highlighted = 0
            if len(self._agents) == 1:
                self.query_one(Input).focus()
            else:
                options.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._finish(True)

    def action_stay(self) -> None:
        self._finish(False)

    def _finish(self, is_opened: bool) -> None:
        if not self._agents:
            self.dismiss(None)
            return
        place = self.query_one(OptionList).highlighted or 0
        message = self.query_one(Input).value.strip()
        self.dismiss(Wanted(self._agents[place], "", message, is_opened))

    def action_leave(self) -> None:
        self.dismiss(None)
