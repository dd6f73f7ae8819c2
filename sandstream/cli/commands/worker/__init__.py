"""``sandstream worker``: serve the agents of a file."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_command, positive


def add_parser(commands: Any) -> None:
    worker = add_command(
        commands,
        "worker",
        "serve the agents of a file: their tools run in this process",
        "  sandstream worker app.py\n  sandstream worker app.py --pool billing --concurrency 8",
        module="commands.worker.command",
        json="one line on stdout when it is ready",
    )
    worker.add_argument("app", metavar="app.py", help="a Python file with agents")
    worker.add_argument("--pool", help="replicas with the same pool share the work (the file name)")
    worker.add_argument(
        "--harness-pool", default="main", help="the harness pool that takes the turns (main)"
    )
    worker.add_argument(
        "--concurrency", type=positive, default=64, metavar="N", help="calls at once (64)"
    )
