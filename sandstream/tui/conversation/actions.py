"""What slash commands and some keys do with a session or run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from textual.content import Content

from sandstream._inspect.texts import count
from sandstream._inspect.visible_text import clean, one_line
from sandstream.approvals import OpenApproval
from sandstream.exceptions import UserError
from sandstream.sessions import DurableSession, SessionInfo, SwitchPreview
from sandstream.tui.conversation.box import Box, box_of
from sandstream.tui.conversation.box_command import BoxCommand
from sandstream.tui.conversation.diffs import (
    changes_content,
    files_before,
    since_text,
    turn_changes,
)
from sandstream.tui.conversation.queue_screen import QueueScreen
from sandstream.tui.conversation.slash import SlashError, fork_arguments, parse, turn_number
from sandstream.tui.conversation.terminal import attach
from sandstream.tui.conversation.transcript_view import text_of
from sandstream.tui.conversation.turns_screen import TurnsScreen
from sandstream.tui.conversation.wakefulness import kept_awake
from sandstream.tui.dialogs import ChoiceDialog, TextScreen
from sandstream.tui.plain_text import line, text

if TYPE_CHECKING:
    from sandstream.tui.conversation.screen import WorkScreen


class Actions:
    """The actions of one screen.

    Args:
        screen: The screen; its errors are told there.
    """

    def __init__(self, screen: WorkScreen) -> None:
        self._screen = screen
        self._do: dict[str, Callable[[str], Awaitable[None]]] = {
            "title": self._title,
            "fork": self._fork,
            "rewind": self._rewind,
            "switch": self._switch,
            "pause": self._pause,
            "wake": self._wake,
            "queue": self._queue,
            "cancel": self._cancel,
            "approve": self._approve,
            "reject": self._reject,
            "diff": self._diff,
            "files": self._files,
            "ports": self._ports,
            "run": self.shell,
            "terminal": self._terminal,
            "cost": self._cost,
            "status": self._status,
            "idle": self._idle,
            "take": self._take,
            "search": screen.find,
            "copy": self._copy,
            "export": self._export,
            "theme": self._theme,
            "inbox": self._inbox,
            "new": self._new,
            "archive": self._archive,
            "destroy": self._destroy,
            "done": self._leave,
            "help": self._help,
        }

    async def slash(self, typed: str) -> None:
        """Do a slash command.

        Args:
            typed: The command with its arguments.

        Raises:
            SlashError: It cannot be understood.
            UserError: It cannot be done.
        """
        command, rest = parse(typed)
        if not command.for_runs and not self._screen.work.is_session:
            raise SlashError(f"/{command.name} is for sessions; this is a single run")
        await self._do[command.name](rest)

    def start(self, name: str, rest: str = "") -> None:
        """Do a command that a key stands for; errors are told on the screen.

        Args:
            name: The name of the command.
            rest: Its arguments.
        """
        self._screen._send(f"/{name} {rest}".strip())

    # --- the session ---------------------------------------------------------------------------

    @property
    def _session(self) -> DurableSession:
        return self._screen.work.session()

    def _info(self) -> SessionInfo:
        if self._screen.info is None:
            raise UserError("the session is not read yet")
        return self._screen.info

    async def _title(self, rest: str) -> None:
        await self._session.rename(rest)

    async def _fork(self, rest: str) -> None:
        wanted = fork_arguments(rest)
        fork = await self._session.fork(
            turn=wanted.turn, provider=wanted.provider, title=wanted.title
        )
        self._screen.app.open_session(fork)
        self._screen.app.notify("this is the fork; the original continues unchanged")

    async def _rewind(self, rest: str) -> None:
        if rest:
            await self._session.rewind(turn_number(rest))
            return
        turns = await self._session.turns()
        if not turns:
            raise UserError("there is no finished turn to go back to")
        chosen = await self._screen.app.push_screen_wait(TurnsScreen(turns))
        if chosen is None:
            return
        match chosen.what:
            case "rewind":
                await self._session.rewind(chosen.turn)
                self._screen.notify(f"rewound to turn {chosen.turn}")
            case "fork":
                await self._fork(f"--turn {chosen.turn}")
            case "diff":
                await self._diff(str(chosen.turn))

    async def _switch(self, rest: str) -> None:
        preview: SwitchPreview = await self._session.switch_preview(rest)
        dialog = ChoiceDialog(
            f"Move the workspace from {preview.source} to {preview.target}?",
            [("yes", f"Move to {preview.target}"), ("", "Stay")],
            preview_content(preview),
        )
        if await self._screen.app.push_screen_wait(dialog):
            self._screen.notify(f"moving to {one_line(rest)}…", markup=False)
            info = await self._session.switch(rest)
            self._screen.notify(f"the workspace is at {one_line(info.provider)}", markup=False)

    async def _pause(self, rest: str) -> None:
        await self._session.pause()

    async def _wake(self, rest: str) -> None:
        await self._session.wake()

    async def _idle(self, rest: str) -> None:
        if rest == "never":
            await self._session.configure(idle_s=None)
            return
        try:
            seconds = float(rest)
        except ValueError:
            raise SlashError(f"usage: /idle SECONDS|never, not {rest!r}") from None
        await self._session.configure(idle_s=seconds)

    async def _take(self, rest: str) -> None:
        match rest:
            case "all" | "one":
                await self._session.configure(take=rest)
            case _:
                raise SlashError("usage: /take all|one")

    async def _archive(self, rest: str) -> None:
        await self._session.archive()
        self._screen.app.show_list()

    async def _destroy(self, rest: str) -> None:
        if await self._screen.app.confirm_destroy(self._info()):
            await self._session.destroy()
            self._screen.app.show_list()

    async def _queue(self, rest: str) -> None:
        await self._screen.app.push_screen_wait(QueueScreen(self._screen))

    # --- answers -------------------------------------------------------------------------------

    async def _cancel(self, rest: str) -> None:
        if not self._screen.is_working:
            raise UserError("nothing is at work")
        self._screen._interrupt()

    async def _approve(self, rest: str) -> None:
        if rest not in ("", "always"):
            raise SlashError("usage: /approve [always]")
        self._screen.decide(self._question(), "A" if rest else "a")

    async def _reject(self, rest: str) -> None:
        self._screen.decide(self._question(), "r", rest or None)

    def _question(self) -> OpenApproval:
        found = self._screen.questions()
        if not found:
            raise UserError("no call waits for an answer")
        return found[0]

    # --- files and the sandbox -----------------------------------------------------------------

    async def _box(self) -> Box:
        return await box_of(self._screen.work, self._screen.info)

    async def shell(self, command: str) -> None:
        """Run a command in the sandbox, and show its output.

        Args:
            command: For the shell of the sandbox.
        """
        async with kept_awake(self._screen.work):
            await BoxCommand(self._screen, command).run(await self._box())

    async def _terminal(self, rest: str) -> None:
        box = await self._box()
        async with kept_awake(self._screen.work):
            code = await self._screen.app.stepped_aside(
                lambda: attach(box), f"A terminal in {box.id} ({box.provider}). Ctrl+] leaves."
            )
        self._screen.notify("left the terminal" if code is None else f"the shell ended with {code}")

    async def _files(self, rest: str) -> None:
        files = await self._screen.files.all(self._screen.info)
        shown = [it for it in files if rest.casefold() in it.casefold()]
        body = text("\n".join(shown) if shown else "no files")
        self._show(f"{len(shown)} files", body)

    async def _ports(self, rest: str) -> None:
        if not rest.isdecimal() or not 0 < int(rest) < 65_536:
            raise SlashError("usage: /ports PORT")
        found = await (await self._box()).port(int(rest))
        scheme = "https" if found.tls else "http"
        query = f"?{found.query}" if found.query else ""
        url = f"{scheme}://{found.host}:{found.port}/{query}"
        self._screen.app.copy_to_clipboard(url)
        self._show(f"Port {rest}", text(f"{url}\n\nThe address is in the clipboard."))

    async def _diff(self, rest: str) -> None:
        turns = await self._session.turns()
        saved = [it for it in turns if it.tree]
        if not saved:
            raise UserError("no turn has a checkpoint yet")
        number = turn_number(rest) if rest else saved[-1].number
        turn = next((it for it in turns if it.number == number), None)
        if turn is None or not turn.tree:
            raise UserError(f"turn {number} has no checkpoint")
        client = self._screen.work.client
        before = await files_before(client, turns, number)
        changes, more = await turn_changes(client, before, turn.tree)
        title = f"Files that turn {number} changed{since_text(before)}"
        self._show(title, changes_content(changes, more))

    # --- what is known -------------------------------------------------------------------------

    async def _cost(self, rest: str) -> None:
        turns = await self._session.turns()
        rows = [
            f"turn {it.number:<4} {it.status:<10} "
            f"{count(it.usage.input_tokens):>8} in {count(it.usage.output_tokens):>8} out"
            for it in turns
        ]
        used = self._info().usage
        rows.append(
            f"{'all':<20} {count(used.input_tokens):>8} in {count(used.output_tokens):>8} out"
        )
        self._show("Tokens", text("\n".join(rows)))

    async def _status(self, rest: str) -> None:
        info, summary = self._screen.info, self._screen.summary
        facts = session_facts(info) if info is not None else []
        if summary is not None:
            facts = [
                ("run", summary.run_id),
                ("agent", summary.agent),
                ("status", summary.status),
                ("step", summary.step),
                ("turns", str(summary.turns)),
                ("tokens", count(summary.usage.total_tokens)),
                ("takeovers", str(summary.takeovers or 0)),
            ]
        facts.append(("last sequence", str(self._screen.transcript.sequence)))
        shown = [f"{name:<16}{clean(value)}" for name, value in facts if value]
        self._show("Status", text("\n".join(shown)))

    async def _copy(self, rest: str) -> None:
        self._screen.app.action_copy()

    async def _export(self, rest: str) -> None:
        target = await asyncio.to_thread(
            Path(rest or f"{self._screen.work.id.replace('=', '-')}.txt").expanduser
        )
        blocks = [clean(text_of(it)) for it in self._screen.transcript.blocks]
        try:
            await asyncio.to_thread(write_new, target, "\n\n".join(blocks) + "\n")
        except OSError as error:
            raise UserError(f"{target} was not written: {error.strerror}") from None
        self._screen.notify(f"written to {target}", markup=False)

    def _show(self, title: str, body: Content) -> None:
        self._screen.app.push_screen(TextScreen(title, body))

    # --- the app -------------------------------------------------------------------------------

    async def _theme(self, rest: str) -> None:
        self._screen.app.use_theme(rest)

    async def _inbox(self, rest: str) -> None:
        self._screen.app.action_inbox()

    async def _new(self, rest: str) -> None:
        agent, _, message = rest.partition(" ")
        sessions = self._screen.work.client.sessions
        self._screen.app.open_session(await sessions.create(agent, input=message.strip()))

    async def _leave(self, rest: str) -> None:
        self._screen.action_back()

    async def _help(self, rest: str) -> None:
        self._screen.app.action_help()


def write_new(target: Path, text: str) -> None:
    """Write a file that does not exist yet."""
    with target.open("x", encoding="utf-8", errors="replace") as file:
        file.write(text)


def preview_content(preview: SwitchPreview) -> Content:
    """What a move would leave behind, as it is shown."""
    parts: list[Content] = [line("Files, modes, links and the conversation carry over.")]
    if preview.waits_for_turn:
        parts.append(line(f"The move waits for the end of turn {preview.waits_for_turn}."))
    if preview.is_served is False:
        parts.append(line(f"No actor serves {preview.target} now.", "$warning"))
    parts += [line(f"- {it.text}", "$warning") for it in preview.losses]
    return Content("\n").join(parts)


def session_facts(info: SessionInfo) -> list[tuple[str, str]]:
    """All that is known of a session."""
    origin = f"{info.origin.session}, turn {info.origin.turn}" if info.origin else ""
    return [
        ("session", info.id),
        ("title", info.title),
        ("agent", info.agent),
        ("activity", f"{info.activity} {info.doing}".strip()),
        ("trouble", info.trouble),
        ("turn", str(info.active.number if info.active else info.turn)),
        ("run", info.active.run if info.active else ""),
        ("waiting", f"{len(info.queue)} messages, a turn takes {info.take}"),
        ("provider", info.provider),
        ("sandbox", f"{info.sandbox} ({info.box})" if info.sandbox else ""),
        ("checkpoint", info.checkpoint[:16]),
        ("sleeps after", "never" if info.idle_s is None else f"{info.idle_s:g} s without work"),
        ("tokens", count(info.usage.total_tokens)),
        ("fork of", origin),
        ("created", info.created),
        ("changed", info.changed),
    ]
