"""The app: it holds the data, opens screens, and knows the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar, TypeVar

from sandstream_bus.environment import variable
from textual import work
from textual.app import App
from textual.binding import BindingType
from textual.filter import LineFilter

from sandstream._inspect.visible_text import clean, one_line
from sandstream.client import Client
from sandstream.exceptions import UserError
from sandstream.sessions import DurableSession, SessionInfo
from sandstream.tui.conversation.screen import PEOPLE_ERRORS, WorkScreen
from sandstream.tui.conversation.work import RunWork, SessionWork, Work
from sandstream.tui.desk import Desk
from sandstream.tui.dialogs import ChoiceDialog
from sandstream.tui.help import HelpScreen
from sandstream.tui.keys import bindings
from sandstream.tui.notices import Notices, ring
from sandstream.tui.overview.entries import Entry
from sandstream.tui.overview.inbox import InboxScreen
from sandstream.tui.overview.screen import ListScreen
from sandstream.tui.palette import WorkCommands
from sandstream.tui.plain_text import NoControls, line
from sandstream.tui.settings import TuiSettings
from sandstream.tui.style import STYLE
from sandstream.tui.theme import CYCLE, OWN

T = TypeVar("T")


class SandstreamApp(App[None]):
    """The terminal UI.

    Args:
        client: The connection. The caller closes it.
        settings: What the person has set.
        open_id: The session or run to open at once; empty: the list.
    """

    TITLE = "Sandstream"
    CSS = STYLE
    BINDINGS: ClassVar[list[BindingType]] = [
        it for it in bindings("everywhere") if getattr(it, "action", "") != "command_palette"
    ]
    COMMANDS = App.COMMANDS | {WorkCommands}
    COMMAND_PALETTE_BINDING = "ctrl+p"
    ENABLE_COMMAND_PALETTE = True

    def __init__(
        self, client: Client, settings: TuiSettings | None = None, *, open_id: str = ""
    ) -> None:
        super().__init__()
        self.settings = settings or TuiSettings()
        self.desk = Desk(client)
        self._open_id = open_id
        self._notices = Notices()
        self._said: dict[str, list[str]] = {}
        self._is_aside = False
        """Something else has the terminal."""
        for theme in OWN:
            self.register_theme(theme)
        self.set_keymap(self.settings.keys)

    def get_line_filters(self) -> list[LineFilter]:
        """The last steps before the terminal; one of them keeps control characters away."""
        return [*super().get_line_filters(), NoControls()]

    def on_mount(self) -> None:
        self.use_theme(self.settings.theme)
        self.push_screen(ListScreen(self.desk))
        self.desk.listen(self._notify_person)
        self._watch()
        if self._open_id:
            self._open_first()

    @work(group="desk")
    async def _watch(self) -> None:
        """Follow everything while the app runs."""
        async with self.desk.watched():
            await asyncio.Event().wait()

    @work(group="open")
    async def _open_first(self) -> None:
        try:
            self.open_work(await self._work_named(self._open_id))
        except PEOPLE_ERRORS as error:
            self.notify(one_line(str(error)), severity="error", markup=False)

    # --- sessions and runs ---------------------------------------------------------------------

    async def _work_named(self, id: str) -> Work:
        sessions = await self.desk.client.sessions.list(archived=True)
        if any(id in (it.id, it.id.rpartition("=")[2]) for it in sessions):
            return SessionWork(self.desk.client, await self.desk.client.sessions.get(id))
        await self.desk.client.get(id)  # raises if there is no such run
        return RunWork(self.desk.client, id)

    async def work_of(self, entry: Entry) -> Work:
        """What an entry of the list stands for.

        Args:
            entry: The entry.
        """
        client = self.desk.client
        if entry.kind == "session":
            return SessionWork(client, await client.sessions.get(entry.id))
        return RunWork(client, entry.id)

    async def work_of_run(self, run: str) -> Work:
        """The session whose turn a run takes, else the run.

        Args:
            run: The id of the run.
        """
        info = self.desk.session_of(run)
        client = self.desk.client
        if info is not None:
            return SessionWork(client, await client.sessions.get(info.id))
        return RunWork(client, run)

    def open_session(self, session: DurableSession) -> None:
        """Show a session.

        Args:
            session: The session.
        """
        self.open_work(SessionWork(self.desk.client, session))

    @work(group="open")
    async def open_entry(self, entry: Entry) -> None:
        """Show an entry of the list.

        Args:
            entry: The entry.
        """
        try:
            self.open_work(await self.work_of(entry))
        except PEOPLE_ERRORS as error:
            self.notify(one_line(str(error)), severity="error", markup=False)

    def open_work(self, work: Work, *, replace: bool = False) -> None:
        """Show a session or run; one that was shown before is left.

        Args:
            work: The session or run.
            replace: Whether to read it anew if it is shown.
        """
        current = self.screen
        if isinstance(current, WorkScreen):
            if current.work.id == work.id and not replace:
                return
            self.switch_screen(WorkScreen(work, self.desk))
        else:
            self.push_screen(WorkScreen(work, self.desk))

    def show_list(self) -> None:
        """Go back to the list. What was shown continues."""
        left = self.screen
        while not isinstance(self.screen, ListScreen) and len(self.screen_stack) > 2:
            self.pop_screen()
        if isinstance(left, WorkScreen) and isinstance(self.screen, ListScreen):
            self.screen.select(left.work.id)

    async def confirm_destroy(self, info: SessionInfo) -> bool:
        """Ask whether to end a session.

        Args:
            info: The session.
        """
        note = "Its workspace is deleted. Forks of it stay."
        choices = [("", "Keep it"), ("yes", "Destroy it")]
        dialog = ChoiceDialog(f"Destroy {info.title or info.id}?", choices, line(note))
        chosen: str | None = await self.push_screen_wait(dialog)
        return bool(chosen)

    def said_in(self, id: str) -> list[str]:
        """What was typed in a session or run before, for the history of the input.

        Args:
            id: The session or run.
        """
        return self._said.setdefault(id, [])

    def remember(self, id: str, text: str) -> None:
        """Keep what was typed.

        Args:
            id: The session or run.
            text: What was typed.
        """
        self._said.setdefault(id, []).append(text)

    # --- the terminal --------------------------------------------------------------------------

    def _notify_person(self) -> None:
        shown = self.screen.work.id if isinstance(self.screen, WorkScreen) else ""
        found = self._notices.of(self.desk.entries()) if self.desk.is_loaded else []
        for id, text in found:
            if id == shown and self.app_focus and not self._is_aside:
                continue  # the person sees it happen
            self.notify(text, markup=False)
            is_heard = self.settings.notify and not self.is_headless and not self._is_aside
            if is_heard and self._driver is not None:
                self._driver.write(ring(text))

    def has_selection(self) -> bool:
        """Whether text on the screen is selected."""
        return bool(self.screen.get_selected_text())

    def action_copy(self) -> None:
        """Copy the selected text; without one, what the screen offers."""
        text = self.screen.get_selected_text() or ""
        if not text and isinstance(self.screen, WorkScreen):
            text = self.screen.copied_text()
        if not text:
            self.notify("there is nothing to copy")
            return
        self.copy_to_clipboard(clean(text))
        self.notify(f"copied {len(text)} characters")

    async def edited(self, text: str) -> str | None:
        """Let the person edit a text in their editor.

        Args:
            text: The text.

        Returns:
            The new text; None: the editor failed.
        """
        editor = variable("VISUAL") or variable("EDITOR") or "vi"
        with tempfile.TemporaryDirectory(prefix="sandstream-tui-") as directory:
            file = Path(directory) / "message.md"
            file.write_text(text)

            async def edit() -> int:
                process = await asyncio.create_subprocess_exec(*shlex.split(editor), str(file))
                return await process.wait()

            try:
                code = await self.stepped_aside(edit)
            except (OSError, ValueError) as error:
                self.notify(f"{editor} did not start: {error}", severity="error", markup=False)
                return None
            if code != 0:
                self.notify(f"{editor} ended with {code}; nothing is changed", markup=False)
                return None
            return file.read_text(errors="replace")

    async def stepped_aside(self, act: Callable[[], Awaitable[T]], banner: str = "") -> T:
        """Give the terminal to something else, until it is done. The log is followed meanwhile,
        but nothing is drawn: what is drawn would wait for the terminal, and block everything.

        Args:
            act: What gets the terminal.
            banner: What is written first.

        Returns:
            What it returns.
        """
        self._is_aside = True
        try:
            with self.batch_update(), self.suspend():
                if banner:
                    os.write(1, f"{one_line(banner)}\r\n".encode())
                # an error must not leave this block: the terminal would not be taken back
                (outcome,) = await asyncio.gather(act(), return_exceptions=True)
        finally:
            self._is_aside = False
            self.refresh(layout=True)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def use_theme(self, name: str) -> None:
        """Use a theme.

        Args:
            name: Its name; empty: the next one.

        Raises:
            UserError: There is no such theme.
        """
        if not name:
            self.action_next_theme()
            return
        if name not in self.available_themes:
            known = ", ".join(sorted(self.available_themes))
            raise UserError(f"there is no theme {name!r}; the themes are: {known}")
        self.theme = name

    def action_next_theme(self) -> None:
        place = CYCLE.index(self.theme) if self.theme in CYCLE else -1
        self.theme = CYCLE[(place + 1) % len(CYCLE)]
        self.notify(f"theme {self.theme}")

    def action_help(self) -> None:
        """Show all keys and commands."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(is_narrow=self.size.width < 70))

    def action_inbox(self) -> None:
        """Show all questions."""
        if not isinstance(self.screen, InboxScreen):
            self.push_screen(InboxScreen(self.desk))


async def run_app(client: Client, settings: TuiSettings, *, open_id: str = "") -> int:
    """Run the UI until the person leaves. Work continues.

    Args:
        client: The connection. The caller closes it.
        settings: What the person has set.
        open_id: The session or run to open at once; empty: the list.

    Returns:
        The exit code: 1 if the UI itself failed.
    """
    app = SandstreamApp(client, settings, open_id=open_id)
    with contextlib.suppress(asyncio.CancelledError):
        await app.run_async()
    return app.return_code or 0
