"""The screen of one session or run. It follows the log; leaving it stops nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Footer, Input, Static

from sandstream._inspect.summaries import RunSummary
from sandstream._inspect.visible_text import one_line
from sandstream.approvals import OpenApproval
from sandstream.sessions import RunStep, SessionChanged, SessionInfo
from sandstream.tui.answers import QuestionPanel
from sandstream.tui.conversation.actions import Actions
from sandstream.tui.conversation.call_text import asked
from sandstream.tui.conversation.completion import Completion, command_choices, file_choices
from sandstream.tui.conversation.files import FileIndex
from sandstream.tui.conversation.prompt import Prompt
from sandstream.tui.conversation.question_screen import PEOPLE_ERRORS as PEOPLE_ERRORS
from sandstream.tui.conversation.question_screen import QuestionScreen
from sandstream.tui.conversation.slash import SlashError, completions, parse_usage
from sandstream.tui.conversation.state_line import run_line, session_line
from sandstream.tui.conversation.transcript import Transcript
from sandstream.tui.conversation.transcript_view import OF_BLOCKS, TranscriptView
from sandstream.tui.conversation.work import Work
from sandstream.tui.desk import Desk
from sandstream.tui.keys import bindings
from sandstream.tui.plain_text import line

if TYPE_CHECKING:
    from sandstream.tui.app import SandstreamApp

_TWICE_S = 0.8
"""Two presses within this time count as a double press."""
_CALM_S = 1.0
"""A question takes the focus only if no key was pressed for this time."""


class WorkScreen(QuestionScreen):
    """Shows a session or a run, and sends what people type.

    Args:
        work: The session or run.
        desk: The data of the app.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        it
        for it in bindings("session")
        if getattr(it, "action", "")
        not in ("send", "newline", "complete", "history", "escape", "back", "fold")
    ]
    AUTO_FOCUS = "#prompt"
    app: SandstreamApp

    def __init__(self, work: Work, desk: Desk) -> None:
        super().__init__(desk)
        self.work = work
        self.info: SessionInfo | None = None
        self.summary: RunSummary | None = None
        self.transcript = Transcript(is_session=work.is_session)
        self.files = FileIndex(work)
        self.actions = Actions(self)
        self._view = TranscriptView(self.transcript)
        self._escaped_at = 0.0
        self._left_at = 0.0
        self._typed_at = 0.0
        self._is_stopping = False
        self._forget: Callable[[], None] = lambda: None
        self._asked: set[tuple[str, str]] = set()
        self._sending: list[str] = []
        """Messages that are not in the log yet."""

    def compose(self) -> ComposeResult:
        yield Static("", id="session-title", markup=False)
        yield self._view
        yield Static("", id="behind", markup=False)
        yield QuestionPanel()
        yield Static("", id="waiting", markup=False)
        yield Input(placeholder="Search; Enter finds the next, Esc closes", id="search")
        yield Completion()
        with Vertical(id="input-box"):
            yield Prompt()
        yield Static("", id="state-line", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one("#search").display = False
        self.query_one(QuestionPanel).display = False
        self.query_one("#waiting").display = False
        self.query_one("#behind").display = False
        self.query_one(Prompt).said = self.app.said_in(self.work.id)
        self._forget = self.desk.listen(self._desk_changed)
        self.set_interval(0.5, self._desk_changed)
        self._follow()
        self._desk_changed()

    def on_unmount(self) -> None:
        self._forget()

    # --- the log -------------------------------------------------------------------------------

    @work(exclusive=True, group="follow")
    async def _follow(self) -> None:
        """Take in the events until the session or run ends, or the screen is left."""
        try:
            async with contextlib.aclosing(self.work.follow()) as told:
                async for event in told:
                    if isinstance(event, SessionChanged):
                        self._changed(event.info)
                    self.transcript.take(event)
                    if isinstance(event, RunStep) and event.turn == 0:
                        self.desk.refresh()
                    self._view.refresh_soon()
        except PEOPLE_ERRORS as error:
            self.complain(error)
        self.show_state()

    def _changed(self, info: SessionInfo) -> None:
        before, self.info = self.info, info
        if before is not None and info.turn < before.turn:
            self.app.call_later(self._begin_again)  # turns were rewound
        if info.active is None:
            self._is_stopping = False
        if before is not None and info.refusal and info.refusal != before.refusal:
            refused = info.refusal
            self.notify(
                f"{refused.kind} was refused: {one_line(refused.error.message)}",
                severity="warning",
                markup=False,
            )
        self.show_state()

    def transcript_changed(self) -> None:
        """Show what has changed in the transcript."""
        self._view.refresh_soon()

    async def _begin_again(self) -> None:
        """Read the session anew: a part of its turns no longer counts."""
        self.app.open_work(self.work, replace=True)

    # --- what is shown -------------------------------------------------------------------------

    @property
    def is_working(self) -> bool:
        """Whether a turn or run is at work."""
        if self.work.is_session:
            return self.info is not None and self.info.active is not None
        return self.summary is not None and not self.summary.is_over

    @property
    def _has_widgets(self) -> bool:
        """False before the screen is made and once it is being removed: timers may come late."""
        return self.query_one_optional("#state-line", Static) is not None

    def _desk_changed(self) -> None:
        if not self._has_widgets:
            return
        if not self.work.is_session:
            self.summary = self.desk.run(self.work.id) or self.summary
        self._show_questions()
        self.show_state()

    def show_state(self) -> None:
        """Show title, state line and waiting messages as they are now."""
        if not self._has_widgets:
            return
        width = self.size.width
        sequence, took_over = self.transcript.sequence, self.transcript.took_over
        asks = next(map(asked, self.questions()), "")
        if self.info is not None:
            title, agent = self.info.title or self.info.id, self.info.agent
            state = session_line(
                self.info, asks=asks, sequence=sequence, took_over=took_over, width=width - 2
            )
        else:
            title = self.desk.title_of(self.work.id)
            agent = self.summary.agent if self.summary else ""
            state = run_line(
                self.summary, asks=asks, sequence=sequence, took_over=took_over, width=width - 2
            )
        if self._is_stopping:
            state = Content.assemble(("stopping… ", "bold $warning"), state)
        if self.desk.trouble is not None:
            state = line(f"reconnecting, last sequence {sequence}", "bold $error")
        self.query_one("#state-line", Static).update(state)
        origin = self.info.origin if self.info else None
        source = self.desk.sessions.get(origin.session) if origin else None
        named = source.title if source is not None and source.title else origin and origin.session
        fork = f"  ↳ fork of {named}, turn {origin.turn}" if origin else ""
        head = Content.assemble(line(title, "bold $primary"), line(f"  {agent}{fork}", "dim"))
        self.query_one("#session-title", Static).update(head)
        self._show_queue()
        prompt = self.query_one(Prompt)
        prompt.border_title = "queue a message" if self.is_working else ""

    def _show_queue(self) -> None:
        waiting = self.info.queue if self.info else []
        unsent = self._sending if self.desk.trouble is not None else []
        shown = self.query_one("#waiting", Static)
        shown.display = bool(waiting or unsent)
        if unsent:
            lines = [line(f"⧗ {it}"[:200], "$warning") for it in unsent[-3:]]
            shown.update(Content("\n").join([*lines, line("sent once it is connected", "dim")]))
        elif waiting:
            lines = [line(f"⧗ {it.input}"[:200], "$warning") for it in waiting[:3]]
            more = f"  and {len(waiting) - 3} more" if waiting[3:] else ""
            hint = line(f"{len(waiting)} waiting{more} · Ctrl+B edits", "dim")
            shown.update(Content("\n").join([*lines, hint]))

    def _show_questions(self) -> None:
        panel = self.query_one(QuestionPanel)
        had = panel.has_focus
        questions = self.questions()
        panel.put(questions)
        keys = {(it.run_id, it.call) for it in questions}
        self._wants_focus = bool(questions) and (self._wants_focus or bool(keys - self._asked))
        self._asked = keys
        prompt = self.query_one(Prompt)
        is_calm = time.monotonic() - self._typed_at > _CALM_S
        if self._wants_focus and not prompt.text and is_calm and self.focused is prompt:
            self._wants_focus = False
            panel.focus()
        elif not questions and had:
            prompt.focus()

    def questions(self) -> list[OpenApproval]:
        """What this session or run asks, the oldest first."""
        runs = {self.work.id}
        if self.info is not None:
            runs = {self.info.active.run} if self.info.active else set()
        found = [it for it in self.desk.questions if {it.run_id, it.root_run} & runs]
        return sorted(found, key=lambda it: it.since)

    # --- the input -----------------------------------------------------------------------------

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        self._escaped_at = 0.0
        self._send(event.text)

    @work(group="send")
    async def _send(self, text: str) -> None:
        """Do what was typed: a slash command, a command for the sandbox, or a message."""
        try:
            if text.startswith("/") and not text.startswith("//"):
                await self.actions.slash(text)
            elif text.startswith("!"):
                if not text[1:].strip():
                    raise SlashError("usage: !COMMAND runs a command in the sandbox")
                await self.actions.shell(text[1:].strip())
            else:
                await self._view.go_to_end()
                self._sending.append(text)
                try:
                    message = text.removeprefix("/") if text[:2] == "//" else text
                    said = await self.work.send(message)
                finally:
                    self._sending.remove(text)
                if said:
                    self.notify(said)
        except PEOPLE_ERRORS as error:
            prompt = self.query_one(Prompt)
            if not prompt.text and not text.startswith("/"):
                prompt.insert(text)  # it was not sent: the person may try again
            self.complain(error)

    def on_prompt_typed(self) -> None:
        self._typed_at = time.monotonic()
        prompt, offers = self.query_one(Prompt), self.query_one(Completion)
        word, _ = prompt.word_at_cursor()
        if prompt.text.startswith("/") and not prompt.text.startswith("//"):
            found = completions(prompt.text, is_session=self.work.is_session)
            offers.offer(command_choices(found))
        elif word.startswith("@"):
            self._offer_files(word[1:])
        else:
            offers.offer([])
        prompt.is_choosing = bool(offers.display)

    @work(exclusive=True, group="files")
    async def _offer_files(self, wanted: str) -> None:
        try:
            files = await self.files.all(self.info)
        except PEOPLE_ERRORS as error:
            self.complain(error)
            return
        prompt, offers = self.query_one(Prompt), self.query_one(Completion)
        word, _ = prompt.word_at_cursor()
        if word.startswith("@"):
            offers.offer(file_choices(files, word[1:]))
            prompt.is_choosing = bool(offers.display)

    async def on_prompt_pressed(self, event: Prompt.Pressed) -> None:
        offers, prompt = self.query_one(Completion), self.query_one(Prompt)
        match event.what:
            case "up" | "down":
                offers.move(-1 if event.what == "up" else 1)
            case "take" | "take_or_send":
                chosen = offers.chosen
                if event.what == "take_or_send" and chosen in (prompt.text, f"{prompt.text} "):
                    prompt.send()
                elif chosen is not None:
                    if chosen.startswith("/"):
                        prompt.load_text("")
                    prompt.replace_word(chosen)
            case "escape":
                self._escape()
            case "back":
                self.action_back()
            case "help":
                self.app.action_help()

    def _escape(self) -> None:
        prompt, offers = self.query_one(Prompt), self.query_one(Completion)
        if offers.display:
            offers.offer([])
            prompt.is_choosing = False
            return
        if self._view.cursor is not None:
            self.run_worker(self._view.go_to_end())
            return
        if self.is_working:
            self._interrupt()
            return
        now = time.monotonic()
        is_double, self._escaped_at = now - self._escaped_at < _TWICE_S, now
        if not is_double:
            return
        if prompt.text:
            prompt.clear()
        elif self.work.is_session:
            self.actions.start("rewind")

    @work(exclusive=True, group="interrupt")
    async def _interrupt(self) -> None:
        self._is_stopping = True
        self.show_state()
        active = self.info.active if self.info else None
        try:
            await self.work.interrupt(active.number if active else None)
        except PEOPLE_ERRORS as error:
            self._is_stopping = False
            self.complain(error)
        self.show_state()

    # --- keys ----------------------------------------------------------------------------------

    def action_back(self) -> None:
        self.app.show_list()

    def action_clear(self) -> None:
        prompt = self.query_one(Prompt)
        if self.app.has_selection():
            self.app.action_copy()
        elif prompt.text:
            prompt.clear()
        elif time.monotonic() - self._left_at < 2 * _TWICE_S:
            self.app.exit()
        else:
            self._left_at = time.monotonic()
            if self.is_working:
                self._interrupt()
            self.notify("press Ctrl+C again to leave; work continues")

    async def action_block(self, step: int) -> None:
        await self._view.move(step)
        self._view.focus()

    async def action_fold(self) -> None:
        await self._view.fold()

    async def action_unselect(self) -> None:
        await self._view.go_to_end()
        self.query_one(Prompt).focus()

    async def action_details(self) -> None:
        await self._view.fold_all()

    def action_scroll_up(self) -> None:
        self._view.scroll_page_up(animate=False)

    def action_scroll_down(self) -> None:
        self._view.scroll_page_down(animate=False)

    async def action_scroll_top(self) -> None:
        if self.transcript.blocks:
            await self._view.go_to(0)

    def action_scroll_end(self) -> None:
        self.run_worker(self._view.go_to_end(), group="window")
        self.query_one(Prompt).focus()

    def action_search(self) -> None:
        box = self.query_one("#search", Input)
        box.display = True
        box.focus()

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        await self.find(event.value)

    async def find(self, wanted: str) -> None:
        """Go to the nearest block above with a text.

        Args:
            wanted: A part of its text.
        """
        place = self._view.find(wanted, after=self._view.cursor) if wanted else None
        if place is None:
            self.notify(f"{one_line(wanted)!r} is not in the transcript", markup=False)
        else:
            await self._view.go_to(place)

    @work(exclusive=True, group="editor")
    async def action_editor(self) -> None:
        prompt = self.query_one(Prompt)
        text = await self.app.edited(prompt.text)
        if text is not None:
            prompt.load_text(text.rstrip("\n"))
            prompt.move_cursor(prompt.document.end)
        prompt.focus()

    def action_terminal(self) -> None:
        self.actions.start("terminal")

    def action_queue(self) -> None:
        self.actions.start("queue")

    def action_diff(self) -> None:
        self.actions.start("diff")

    def type_command(self, name: str) -> None:
        """Put a slash command into the input; one without arguments is done.

        Args:
            name: Its name.
        """
        prompt = self.query_one(Prompt)
        prompt.load_text(f"/{name} ")
        prompt.move_cursor(prompt.document.end)
        prompt.focus()
        if not parse_usage(name):
            prompt.send()

    def copied_text(self) -> str:
        """What the copy key copies: the selected block, or the last answer."""
        return self._view.selected_text()

    def on_key(self, event: events.Key) -> None:
        """Esc closes the search; what is typed while a block is selected goes to the input."""
        search, prompt = self.query_one("#search", Input), self.query_one(Prompt)
        if search.has_focus and event.key == "escape":
            search.display = False
            prompt.focus()
        elif self._view.has_focus and event.is_printable and event.character not in OF_BLOCKS:
            prompt.focus()
            prompt.insert(event.character or "")
        else:
            return
        event.stop()

    def on_transcript_view_followed(self) -> None:
        behind = self.query_one("#behind", Static)
        behind.display = not self._view.is_following
        behind.update(line("↓ newer below · Ctrl+End follows", "$warning"))
