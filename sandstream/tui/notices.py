"""Notices to the person outside of the screen: the bell, and a message of the terminal (OSC 9)."""

from __future__ import annotations

from sandstream._inspect.visible_text import in_one_line
from sandstream.tui.overview.entries import Entry

_MOST = 120


class Notices:
    """Finds out what a person should hear of: what newly needs them, and what is done.

    Only changes count: what was so when the UI began is on the list.
    """

    def __init__(self) -> None:
        self._groups: dict[str, str] | None = None

    def of(self, entries: list[Entry]) -> list[str]:
        """The notices that follow from a change, as texts.

        Args:
            entries: All entries of the list, as they are now.
        """
        before, self._groups = self._groups, {it.id: it.group for it in entries}
        if before is None:
            return []
        found: list[str] = []
        for it in entries:
            was = before.get(it.id)
            if it.group == "needs you" and was != "needs you":
                found.append(f"{it.title} needs you")
            elif was in ("working", "needs you") and it.group in ("done", "failed", "asleep"):
                how = "failed" if it.group == "failed" else "is done"
                found.append(f"{it.title} {how}")
        return [in_one_line(it)[:_MOST] for it in found]


def ring(text: str) -> str:
    """What rings the bell, and shows a message where the terminal knows them.

    Args:
        text: The message.
    """
    return f"\x1b]9;{in_one_line(text)}\x07\x07"
