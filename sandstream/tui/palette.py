"""The command palette: sessions and runs to open, slash commands, and the commands of Textual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.command import DiscoveryHit, Hit, Hits, Provider

from sandstream._inspect.visible_text import one_line
from sandstream.tui.conversation.screen import WorkScreen
from sandstream.tui.conversation.slash import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandstream.tui.app import SandstreamApp
    from sandstream.tui.overview.entries import Entry


class WorkCommands(Provider):
    """Offers what can be opened and done now."""

    async def discover(self) -> Hits:
        """What is offered before anything is typed."""
        for text, does, act in self._all():
            yield DiscoveryHit(text, act, help=does)

    async def search(self, query: str) -> Hits:
        """What fits the typed text.

        Args:
            query: The typed text.
        """
        matcher = self.matcher(query)
        for text, does, act in self._all():
            if (score := matcher.match(text)) > 0:
                yield Hit(score, matcher.highlight(text), act, help=does)

    def _all(self) -> Iterator[tuple[str, str, Callable[[], None]]]:
        app: SandstreamApp = self.app  # type: ignore[assignment]
        screen = self.screen
        yield "Inbox", "all questions to you", app.action_inbox
        yield "List", "all sessions and runs", app.show_list
        yield "Help", "all keys and commands", app.action_help
        if isinstance(screen, WorkScreen):
            for command in COMMANDS:
                if screen.work.is_session or command.for_runs:
                    yield f"/{command.name}", command.does, _typed(screen, command.name)
        for entry in app.desk.entries():
            title = f"Open {one_line(entry.title)}".replace("[", "(").replace("]", ")")
            yield title, f"{entry.kind}, {entry.state}", _opened(app, entry)


def _typed(screen: WorkScreen, name: str) -> Callable[[], None]:
    return lambda: screen.type_command(name)


def _opened(app: SandstreamApp, entry: Entry) -> Callable[[], None]:
    def act() -> None:
        app.open_entry(entry)

    return act
