"""``sandstream send``: give a run more input."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_author, add_command


def add_parser(commands: Any) -> None:
    send = add_command(
        commands,
        "send",
        "give an open run more input for its next model call",
        '  sandstream send RUN "Also look at Bern."\n  sandstream send RUN - < more.txt',
        module="commands.send.command",
        json="one object: the run and the person's name",
    )
    send.add_argument("run", metavar="RUN", help="the run's id")
    send.add_argument("input", metavar="TEXT", help="what to say; - reads stdin")
    add_author(send)
