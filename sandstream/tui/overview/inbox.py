"""The inbox: what agents ask in all sessions and runs, answered in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from sandstream._inspect.rows import Call
from sandstream._inspect.visible_text import one_line
from sandstream.approvals import OpenApproval
from sandstream.tui.answers import AnswerKey, Readiness, answer, question_content
from sandstream.tui.conversation.call_text import title
from sandstream.tui.conversation.screen import PEOPLE_ERRORS
from sandstream.tui.desk import Desk
from sandstream.tui.dialogs import TextDialog
from sandstream.tui.keys import bindings
from sandstream.tui.overview.rows import age, fit
from sandstream.tui.plain_text import line

if TYPE_CHECKING:
    from sandstream.tui.app import SandstreamApp


class InboxScreen(ModalScreen[None]):
    """All open questions, the newest first.

    Args:
        desk: The data of the app.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("question", "answer('a')", "answer('A')", "answer('r')", "answer('R')", "reason"),
        Binding("j", "step(1)", show=False),
        Binding("k", "step(-1)", show=False),
        Binding("escape,q,left", "leave", "Close"),
        Binding("o", "open", "Open"),
    ]
    app: SandstreamApp

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.desk = desk
        self._shown: list[OpenApproval] | None = None
        self._forget: Callable[[], None] = lambda: None
        self._readiness = Readiness(self, self._show)

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(line("Questions to you", "bold $primary"), markup=False)
            yield OptionList(id="inbox-list", markup=False)
            with VerticalScroll(id="inbox-question", can_focus=False):
                yield Static("", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._forget = self.desk.listen(self._look)
        self._look()
        self.query_one(OptionList).focus()

    def on_unmount(self) -> None:
        self._forget()

    def _look(self) -> None:
        questions = list(self.desk.questions)
        if questions == self._shown or self.query_one_optional(OptionList) is None:
            return
        options = self.query_one(OptionList)
        current, place = self._current(), options.highlighted or 0
        same = (n for n, it in enumerate(questions) if current and _id(it) == _id(current))
        place = next(same, place)  # the cursor stays on its question if others come and go
        self._shown = questions
        rows = [Option(self._row(it)) for it in questions]
        options.set_options(rows or [Option(line("nothing waits for you", "dim"), disabled=True)])
        options.highlighted = min(place, len(questions) - 1) if questions else None
        self._show()

    def _row(self, it: OpenApproval) -> Content:
        what = title(Call(name=it.tool, arguments=it.arguments))
        where = self.desk.title_of(it.root_run)
        return Content.assemble(
            ("? ", "bold $warning"),
            (fit(where, 20), ""),
            (f" {fit(it.agent, 12)} ", "dim"),
            (what[:100], "$foreground"),
            (f"  {age(it.since)}", "dim"),
        )

    def on_option_list_option_highlighted(self) -> None:
        self._show()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_open()

    def _show(self) -> None:
        current = self._current()
        self._readiness.show(current)
        is_ready = self._readiness.is_ready
        shown = question_content(current, is_ready=is_ready) if current else Content("")
        self.query_one("#inbox-question Static", Static).update(shown)

    def _current(self) -> OpenApproval | None:
        place = self.query_one(OptionList).highlighted
        return self._shown[place] if self._shown and place is not None else None

    def action_step(self, step: int) -> None:
        options = self.query_one(OptionList)
        if step > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()

    def action_answer(self, key: AnswerKey) -> None:
        if (current := self._current()) is not None and self._readiness.is_ready:
            self._answer(current, key)

    @work(group="answer")
    async def _answer(
        self, question: OpenApproval, key: AnswerKey, reason: str | None = None
    ) -> None:
        try:
            done = await answer(self.desk.client, question, key, by=self.desk.by, reason=reason)
        except PEOPLE_ERRORS as error:
            self.notify(one_line(str(error))[:500], severity="error", markup=False)
        else:
            self.notify(done, markup=False)
        self.desk.refresh()

    @work(group="reason")
    async def action_reason(self) -> None:
        if (current := self._current()) is None or not self._readiness.is_ready:
            return
        dialog = TextDialog(f"Why is {current.tool} rejected? The model is told.")
        reason = await self.app.push_screen_wait(dialog)
        if reason is not None:
            self._answer(current, "r", reason or None)

    @work(group="open")
    async def action_open(self) -> None:
        if (current := self._current()) is not None:
            work = await self.app.work_of_run(current.root_run)
            self.dismiss(None)
            self.app.open_work(work)

    def action_leave(self) -> None:
        self.dismiss(None)


def _id(question: OpenApproval) -> tuple[str, str]:
    return question.run_id, question.call
