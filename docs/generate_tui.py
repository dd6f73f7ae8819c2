"""The tables of keys and slash commands in docs/tui.md, made from the code.

python docs/generate_tui.py          writes the tables
python docs/generate_tui.py --check  fails if they are outdated
"""

from __future__ import annotations

import sys
from pathlib import Path

from sandstream.tui.conversation.slash import COMMANDS
from sandstream.tui.keys import KEYS, PLACES, name_of

PAGE = Path(__file__).resolve().parent / "tui.md"
_KEYS = ("## Keys\n", "\nThe shifted and control keys depend")
_COMMANDS = ("that begins with a slash.\n", "\n## Settings")
"""What is before and after each part on the page."""


def keys_tables() -> str:
    """One table for each place. The last column is the name in ``[keys]``."""
    parts = []
    for place, heading in PLACES.items():
        lines = [f"**{heading}**\n", "| key | what it does | name |", "|---|---|---|"]
        for it in KEYS:
            if it.place == place:
                name = name_of(it)
                lines.append(f"| {it.shown} | {it.does} | {f'`{name}`' if name else ''} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def commands_table() -> str:
    """All slash commands."""
    lines = ["| command | what it does | runs |", "|---|---|---|"]
    for it in COMMANDS:
        usage = it.usage.replace("|", "\\|")
        lines.append(f"| `{usage}` | {it.does} | {'yes' if it.for_runs else ''} |")
    return "\n".join(lines)


def written(page: str) -> str:
    """The page with tables as the code has them now."""
    for (before, after), table in ((_KEYS, keys_tables()), (_COMMANDS, commands_table())):
        if page.count(before) != 1 or page.count(after) != 1:
            raise SystemExit(f"docs/tui.md needs {before.strip()!r} and {after.strip()!r} once")
        head, _, rest = page.partition(before)
        tail = rest.partition(after)[2]
        page = f"{head}{before}\n{table}\n{after}{tail}"
    return page


def main() -> None:
    page = PAGE.read_text()
    new = written(page)
    if "--check" in sys.argv[1:]:
        if new != page:
            raise SystemExit("docs/tui.md is outdated: run `make docs`")
    else:
        PAGE.write_text(new)


if __name__ == "__main__":
    main()
