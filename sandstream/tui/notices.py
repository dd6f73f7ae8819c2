"""Notices to the person outside of the screen: the bell, and a message of the terminal (OSC 9)."""

from __future__ import annotations

from typing import NamedTuple

from sandstream._inspect.visible_text import in_one_line
from sandstream.tui.overview.entries import Entry

_MOST = 100
_AT_WORK = ("working", "needs you")


class Notice(NamedTuple):
    """What a person should hear of."""

    id: str
    """The session or run."""
    text: str


class Notices:
    """Finds out what a person should hear of: what newly needs them, and what is done.

    Only changes count: what was so when the UI began is on the list.
    """

    def __init__(self) -> None:
        self._before: dict[str, tuple[str, bool]] | None = None
        """The group of each entry, and whether it had a run at work."""

    def of(self, entries: list[Entry]) -> list[Notice]:
        """The notices that follow from a change.

        Args:
            entries: All entries of the list, as they are now.
        """
        now = {it.id: (it.group, bool(it.run)) for it in entries}
        before, self._before = self._before, now
        if before is None:
            return []
        found: list[Notice] = []
        for it in entries:
            was, had_run = before.get(it.id, ("", False))
            title = in_one_line(it.title)[:_MOST]
            if it.group == "needs you" and was != "needs you":
                found.append(Notice(it.id, f"{title} needs you"))
            elif had_run and was in _AT_WORK and it.group not in _AT_WORK:
                how = "failed" if it.group == "failed" else "is done"
                found.append(Notice(it.id, f"{title} {how}"))
        return found


def ring(text: str) -> str:
    """What rings the bell, and shows a message where the terminal knows them.

    Args:
        text: The message.
    """
    return f"\x1b]9;{in_one_line(text)}\x07\x07"
