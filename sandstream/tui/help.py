"""The help screen: all keys and all slash commands, from their tables."""

from __future__ import annotations

from textual.content import Content

from sandstream.tui.conversation.slash import COMMANDS
from sandstream.tui.dialogs import TextScreen
from sandstream.tui.keys import KEYS, PLACES


class HelpScreen(TextScreen):
    """Shows all keys and slash commands."""

    def __init__(self) -> None:
        super().__init__("Help", help_content())


def help_content() -> Content:
    """The help text."""
    parts: list[str | tuple[str, str]] = [
        ("Detaching never stops work: sessions and runs live in the log.\n", ""),
    ]
    for place, heading in PLACES.items():
        parts.append((f"\n{heading}\n", "bold $primary"))
        for it in KEYS:
            if it.place == place:
                parts.append((f"  {it.shown:<20}", "bold"))
                parts.append((f" {it.does}\n", ""))
    parts.append(("\nIn the input\n", "bold $primary"))
    for shown, does in (
        ("/command", "a slash command; Tab completes"),
        ("!command", "run a command in the sandbox"),
        ("@path", "complete the path of a file in the sandbox"),
    ):
        parts.append((f"  {shown:<20}", "bold"))
        parts.append((f" {does}\n", ""))
    parts.append(("\nSlash commands\n", "bold $primary"))
    for command in COMMANDS:
        parts.append((f"  {command.usage:<28}", "bold"))
        parts.append((f" {command.does}\n", ""))
    return Content.assemble(*parts)
