"""Writes docs/cli.md from the command line's own help; --check only reports whether it is old."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from sandstream.cli.exits import MEANINGS
from sandstream.cli.parser import build_parser

PAGE = Path(__file__).with_name("cli.md")
INTRODUCTION = """\
# The command line

Generated from `sandstream --help` by `docs/generate_cli.py`; edit the texts in
`sandstream/cli/commands/`.

Data goes to stdout; progress, hints and errors go to stderr. For programs, `--json` prints one
object per line, with the same names as the messages on the bus.
"""


def page() -> str:
    """The whole page."""
    os.environ |= {"NO_COLOR": "1", "COLUMNS": "96"}
    parser = build_parser()
    return "\n".join([INTRODUCTION, _exit_codes(), *_sections("sandstream", parser)])


def _exit_codes() -> str:
    rows = "".join(f"| {code:d} | {meaning} |\n" for code, meaning in MEANINGS.items())
    return (
        f"## Exit codes\n\n| code | meaning |\n|---|---|\n{rows}\n"
        "`sandstream sandboxes exec` exits with the exit code of its command.\n"
    )


def _sections(title: str, parser: argparse.ArgumentParser) -> list[str]:
    """The command's own, then those of its actions."""
    parts = [_section(title, parser)]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                parts += _sections(f"{title} {name}", inner)
    return parts


def _section(title: str, parser: argparse.ArgumentParser) -> str:
    text = "\n".join(line.rstrip() for line in parser.format_help().strip().splitlines())
    return f"## {title}\n\n```text\n{text}\n```\n"


def main() -> int:
    wanted = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(wanted)
        return 0
    if PAGE.exists() and PAGE.read_text() == wanted:
        return 0
    print(f"{PAGE} is not what --help says; run: python docs/generate_cli.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
