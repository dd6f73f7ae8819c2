"""The list of all sessions and runs, live."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

from sandstream._inspect.visible_text import one_line
from sandstream.approvals import OpenApproval
from sandstream.exceptions import UserError
from sandstream.sessions import SessionInfo
from sandstream.tui.answers import AnswerKey, answer
from sandstream.tui.conversation.screen import PEOPLE_ERRORS
from sandstream.tui.desk import Desk
from sandstream.tui.dialogs import TextDialog
from sandstream.tui.keys import bindings
from sandstream.tui.overview.entries import GROUP_BY, Entry, GroupBy, Heading, Line, listed
from sandstream.tui.overview.new_session import NewSession
from sandstream.tui.overview.peek import Peek
from sandstream.tui.overview.rows import heading, row
from sandstream.tui.plain_text import line

if TYPE_CHECKING:
    from sandstream.tui.app import SandstreamApp

_FRAME_S = 0.1


class ListScreen(Screen[None]):
    """All sessions and runs in groups.

    Args:
        desk: The data of the app.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        *(it for it in bindings("list") if getattr(it, "action", "") != "open"),
        *bindings("question", "answer('a')", "answer('A')", "answer('r')", "answer('R')", "reason"),
    ]
    AUTO_FOCUS = "#entries"
    app: SandstreamApp

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self.desk = desk
        self.by: GroupBy = "state"
        self._lines: list[Heading | Line] = []
        self._shown: list[tuple[str, str]] = []
        """The id and the text of each line on the screen."""
        self._is_stale = False
        """All lines are made anew: the width may differ, or another entry is to be selected."""
        self._is_due = False
        self._selected_id = ""
        self._wanted_id = ""
        """The entry to select as soon as it is listed."""
        self._is_touched = False
        """A person has used the list. Before that, the first entry is the selected one: the entry
        that was first when the list opened may be anywhere by now.
        """

    def compose(self) -> ComposeResult:
        yield Static("", id="list-title", markup=False)
        yield Input(placeholder="Filter", id="filter")
        with Horizontal(id="list-body"):
            yield EntryList()
            yield Peek()
        yield Static("", id="list-state", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one("#filter").display = False
        self.query_one(Peek).display = False
        self.desk.listen(self.refresh_soon)
        self.set_interval(5.0, self.refresh_soon)  # ages
        self.refresh_soon()

    def on_resize(self) -> None:
        self._is_stale = True
        self.set_class(self.size.width < 100, "-narrow")
        self.refresh_soon()

    # --- the lines -----------------------------------------------------------------------------

    def refresh_soon(self) -> None:
        """Show the list again, at most ten times a second."""
        if not self._is_due:
            self._is_due = True
            self.set_timer(_FRAME_S, self._show)

    def _show(self) -> None:
        self._is_due = False
        if self.query_one_optional(EntryList) is None:
            return  # the app ends
        if not self.is_current and self.app.screen is not self:
            self._is_stale = True  # shown again when the screen is
            return
        entries = self.desk.entries()
        wanted = self.query_one("#filter", Input).value
        self._lines = listed(entries, by=self.by, wanted=wanted)
        self._put()
        self._show_head(entries)
        self._show_peek()

    def on_screen_resume(self) -> None:
        self._is_stale = True
        self.refresh_soon()

    def _put(self) -> None:
        options = self.query_one(EntryList)
        width = max(20, options.content_size.width - 2 or self.size.width - 2)
        contents = [
            (f"# {it.text}", heading(it))
            if isinstance(it, Heading)
            else (it.entry.id, row(it, width))
            for it in self._lines
        ]
        shown = [(key, str(content.markup)) for key, content in contents]
        if shown == self._shown and not self._is_stale:
            return
        keys = [key for key, _ in shown]
        if keys == [key for key, _ in self._shown] and not self._is_stale:
            for place, (new, old) in enumerate(zip(shown, self._shown, strict=True)):
                if new != old:
                    options.replace_option_prompt_at_index(place, contents[place][1])
        else:
            selected = self._wanted_id or (self._selected_id if self._is_touched else "")
            options.set_options(
                Option(content, disabled=isinstance(it, Heading))
                for it, (_, content) in zip(self._lines, contents, strict=True)
            )
            self._select(selected)
        self._shown, self._is_stale = shown, False

    def select(self, id: str) -> None:
        """Select an entry, once it is listed.

        Args:
            id: The session or run.
        """
        self._wanted_id = id
        self._is_touched = True
        self._is_stale = True
        self.refresh_soon()

    def _select(self, id: str) -> None:
        places = [n for n, it in enumerate(self._lines) if isinstance(it, Line)]
        same = [n for n in places if self._entry(n).id == id]
        if same:
            self._wanted_id = ""
        options = self.query_one(EntryList)
        options.highlighted = same[0] if same else places[0] if places else None

    def _entry(self, place: int) -> Entry:
        it = self._lines[place]
        assert isinstance(it, Line)
        return it.entry

    @property
    def selected(self) -> Entry | None:
        """The entry that is selected."""
        place = self.query_one(EntryList).highlighted
        if place is None or place >= len(self._shown):
            return None
        key = self._shown[place][0]
        found = (it.entry for it in self._lines if isinstance(it, Line) and it.entry.id == key)
        return next(found, None)

    def _show_head(self, entries: list[Entry]) -> None:
        counts = Counter(it.group for it in entries)
        needs = (f"  {counts['needs you']} need you", "bold $warning")
        parts: list[str | tuple[str, str]] = [("Sandstream", "bold $primary")]
        parts += [needs] if counts["needs you"] else []
        parts.append((f"  {counts['working']} working", "$secondary"))
        parts.append((f"  {len(entries)} in all", "dim"))
        if self.by != "state":
            parts.append((f"  by {self.by}", "dim"))
        self.query_one("#list-title", Static).update(Content.assemble(*parts))
        state = self.query_one("#list-state", Static)
        if self.desk.trouble is not None:
            state.update(line("reconnecting; the list is from before", "bold $error"))
        elif not self.desk.is_loaded:
            state.update(line("reads the log…", "dim"))
        elif not entries:
            state.update(line("no sessions and no runs yet: n starts a session", "dim"))
        state.display = bool(self.desk.trouble or not self.desk.is_loaded or not entries)

    # --- selecting and peeking -----------------------------------------------------------------

    def on_key(self) -> None:
        self._is_touched = True

    def on_mouse_down(self) -> None:
        self._is_touched = True

    def on_option_list_option_highlighted(self) -> None:
        if (entry := self.selected) is not None:
            self._selected_id = entry.id
        self._show_peek()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_open()

    def _show_peek(self) -> None:
        peek = self.query_one(Peek)
        if peek.display:
            entry = self.selected
            questions = self.desk.questions_of(entry) if entry else []
            peek.put(entry, self.desk.sessions.get(entry.id) if entry else None, questions)

        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The keys of answers are for entries that ask something."""
        if action in ("answer", "reason") and self.is_mounted:
            entry = self.selected
            return bool(entry and self.desk.questions_of(entry))
        return True

    def action_peek(self) -> None:
        peek = self.query_one(Peek)
        peek.display = not peek.display
        self._is_stale = True
        self._show_peek()
        self.call_after_refresh(self._show)

    def action_reply(self) -> None:
        if not self.query_one(Peek).display:
            self.action_peek()
        self.query_one("#reply", Input).focus()

    def on_peek_replied(self, event: Peek.Replied) -> None:
        self.query_one(EntryList).focus()
        self._reply(event.text)

    @work(group="reply")
    async def _reply(self, text: str) -> None:
        if (entry := self.selected) is None:
            return
        try:
            work = await self.app.work_of(entry)
            said = await work.send(text)
        except PEOPLE_ERRORS as error:
            self.complain(error)
        else:
            self.notify(said or "sent")
            self.desk.refresh()

    def action_answer(self, key: AnswerKey) -> None:
        peek = self.query_one(Peek)
        if not peek.display:
            self.action_peek()  # a person sees the question before it is answered
        elif (question := peek.answerable) is not None:
            self._answer(question, key)

    @work(group="answer")
    async def _answer(
        self, question: OpenApproval, key: AnswerKey, reason: str | None = None
    ) -> None:
        try:
            by = self.desk.by
            done = await answer(self.desk.client, question, key, by=by, reason=reason)
        except PEOPLE_ERRORS as error:
            self.complain(error)
        else:
            self.notify(done, markup=False)
        self.desk.refresh()

    @work(group="reason")
    async def action_reason(self) -> None:
        peek = self.query_one(Peek)
        if not peek.display:
            self.action_peek()  # as for the other answers
        if (question := peek.answerable) is None:
            return
        dialog = TextDialog(f"Why is {question.tool} rejected? The model is told.")
        reason = await self.app.push_screen_wait(dialog)
        if reason is not None:
            self._answer(question, "r", reason or None)

    def complain(self, error: BaseException) -> None:
        """Tell the person what went wrong.

        Args:
            error: One of ``PEOPLE_ERRORS``.
        """
        text = one_line(str(error)) or type(error).__name__
        self.notify(text[:500], severity="error", timeout=8, markup=False)

    # --- keys ----------------------------------------------------------------------------------

    def action_move(self, step: int) -> None:
        options = self.query_one(EntryList)
        if step > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()

    @work(group="open")
    async def action_open(self) -> None:
        if (entry := self.selected) is not None:
            try:
                self.app.open_work(await self.app.work_of(entry))
            except PEOPLE_ERRORS as error:
                self.complain(error)

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter":
            self.refresh_soon()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "filter":
            self.query_one(EntryList).focus()

    def action_close(self) -> None:
        box = self.query_one("#filter", Input)
        if box.display:
            box.clear()
            box.display = False
            self.query_one(EntryList).focus()
        elif self.query_one(Peek).display:
            self.query_one(EntryList).focus()
            self.action_peek()

    def action_quit(self) -> None:
        self.app.exit()

    def action_help(self) -> None:
        self.app.action_help()

    def action_group(self) -> None:
        self.by = GROUP_BY[(GROUP_BY.index(self.by) + 1) % len(GROUP_BY)]
        self._show()

    def _session(self) -> SessionInfo:
        entry = self.selected
        info = self.desk.sessions.get(entry.id) if entry else None
        if info is None:
            raise UserError("this is a single run: only sessions can do that")
        return info

    @work(group="ask")
    async def action_new(self) -> None:
        try:
            wanted = await self.app.push_screen_wait(NewSession(await self.desk.client.agents()))
            if wanted is None:
                return
            session = await self.desk.client.sessions.create(
                wanted.agent, title=wanted.title, input=wanted.message
            )
        except PEOPLE_ERRORS as error:
            self.complain(error)
            return
        self.desk.refresh()
        if wanted.is_opened:
            self.app.open_session(session)

    @work(group="ask")
    async def action_fork(self) -> None:
        try:
            session = await self.desk.client.sessions.get(self._session().id)
            self.app.open_session(await session.fork())
        except PEOPLE_ERRORS as error:
            self.complain(error)
        self.desk.refresh()

    @work(group="ask")
    async def action_rename(self) -> None:
        try:
            info = self._session()
            title = await self.app.push_screen_wait(TextDialog("Title", info.title))
            if title:
                await (await self.desk.client.sessions.get(info.id)).rename(title)
        except PEOPLE_ERRORS as error:
            self.complain(error)
        self.desk.refresh()

    @work(group="ask")
    async def action_stop(self) -> None:
        if (entry := self.selected) is None:
            return
        try:
            await (await self.app.work_of(entry)).interrupt(None)
        except PEOPLE_ERRORS as error:
            self.complain(error)
        else:
            self.notify("stopping…")
        self.desk.refresh()

    @work(group="ask")
    async def action_destroy(self) -> None:
        try:
            info = self._session()
            if await self.app.confirm_destroy(info):
                await (await self.desk.client.sessions.get(info.id)).destroy()
        except PEOPLE_ERRORS as error:
            self.complain(error)
        self.desk.refresh()

    @work(group="ask")
    async def action_archive(self) -> None:
        try:
            await (await self.desk.client.sessions.get(self._session().id)).archive()
        except PEOPLE_ERRORS as error:
            self.complain(error)
        self.desk.refresh()


class EntryList(OptionList):
    """The lines of the list."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("list", "open")

    def __init__(self) -> None:
        super().__init__(id="entries", markup=False)

    def action_open(self) -> None:
        if self.highlighted is not None:
            self.action_select()
