"""Small screens over others: a question, a line of text, a choice, a long text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from sandstream.tui.plain_text import line


class TextDialog(ModalScreen[str | None]):
    """Asks for one line of text; None: the person left it.

    Args:
        title: What is asked.
        value: What stands in the line at first.
        placeholder: What an empty line shows.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Cancel")]

    def __init__(self, title: str, value: str = "", placeholder: str = "") -> None:
        super().__init__()
        self._title = title
        self._value = value
        self._placeholder = placeholder

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(line(self._title, "bold"), markup=False)
            yield Input(self._value, placeholder=self._placeholder)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        self.dismiss(None)


class ChoiceDialog(ModalScreen[str | None]):
    """Asks for one of several things; None: the person left it.

    Args:
        title: What is asked.
        choices: The answers, each with what is shown.
        note: More about it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,left", "leave", "Cancel"),
        Binding("j", "down", show=False),
        Binding("k", "up", show=False),
    ]

    def __init__(
        self,
        title: str,
        choices: Sequence[tuple[str, str]],
        note: Content | None = None,
    ) -> None:
        super().__init__()
        self._title = title
        self._choices = choices
        self._note = note

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(line(self._title, "bold"), markup=False)
            if self._note is not None:
                with VerticalScroll(classes="note"):
                    yield Static(self._note, markup=False)
            shown = [Option(line(it)) for _, it in self._choices]
            yield OptionList(*shown, markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._choices[event.option_index][0])

    def action_down(self) -> None:
        self.query_one(OptionList).action_cursor_down()

    def action_up(self) -> None:
        self.query_one(OptionList).action_cursor_up()

    def action_leave(self) -> None:
        self.dismiss(None)


class TextScreen(ModalScreen[None]):
    """Shows a long text: a diff, the files, the status.

    Args:
        title: What it is.
        body: The text; it must be clean.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,left", "leave", "Close"),
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("ctrl+y", "copy", "Copy"),
    ]

    def __init__(self, title: str, body: Content) -> None:
        super().__init__()
        self._title = title
        self._body = body

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(line(self._title, "bold $primary"), classes="sheet-title", markup=False)
            with VerticalScroll(id="sheet-body"):
                yield Static(self._body, markup=False)
            yield Static(line("Esc closes · Ctrl+Y copies", "dim"), markup=False)

    def on_mount(self) -> None:
        self.query_one("#sheet-body").focus()
        self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        """Leave room for the title, the hint and the border; a short text makes a small sheet."""
        room = self.size.height * 9 // 10 - 4
        self.query_one("#sheet-body").styles.max_height = max(1, room)

    def action_scroll_down(self) -> None:
        self.query_one("#sheet-body").scroll_down()

    def action_scroll_up(self) -> None:
        self.query_one("#sheet-body").scroll_up()

    def action_copy(self) -> None:
        self.app.copy_to_clipboard(self._body.plain)
        self.notify("copied")

    def action_leave(self) -> None:
        self.dismiss(None)
