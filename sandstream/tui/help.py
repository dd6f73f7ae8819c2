"""The help screen: all keys and all slash commands, from their tables."""

from __future__ import annotations

from textual.content import Content

from sandstream.tui.conversation.slash import COMMANDS
from sandstream.tui.dialogs import TextScreen
from sandstream.tui.keys import KEYS, PLACES


class HelpScreen(TextScreen):
    """Shows all keys and slash commands."""

    def __init__(self, *, is_narrow: bool = False) -> None:
        super().__init__("Help", help_content(is_narrow=is_narrow))


def help_content(*, is_narrow: bool = False) -> Content:
    """The help text; ``is_narrow``: what a key does stands below it."""

    def row(shown: str, does: str, width: int) -> list[str | tuple[str, str]]:
        if is_narrow:
            return [(f"  {shown}\n", "bold"), (f"    {does}\n", "")]
        return [(f"  {shown:<{width}}", "bold"), (f" {does}\n", "")]

    parts: list[str | tuple[str, str]] = [
        ("Detaching never stops work: sessions and runs live in the log.\n", ""),
    ]
    for place, heading in PLACES.items():
        parts.append((f"\n{heading}\n", "bold $primary"))
        for it in KEYS:
            if it.place == place:
                parts += row(it.shown, it.does, 20)
    parts.append(("\nIn the input\n", "bold $primary"))
    for shown, does in (
        ("/command", "a slash command; Tab completes"),
        ("!command", "run a command in the sandbox"),
        ("@path", "complete the path of a file in the sandbox"),
    ):
        parts += row(shown, does, 20)
    parts.append(("\nSlash commands\n", "bold $primary"))
    for command in COMMANDS:
        parts += row(command.usage, command.does, 41)
    return Content.assemble(*parts)
