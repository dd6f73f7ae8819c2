"""``sandstream up``: a bus, actors and agents, here."""

from __future__ import annotations

import argparse
from typing import Any

from sandstream_actors.registry import ActorEntry

from sandstream.cli.grammar import add_command, positive


def add_parser(commands: Any, actors: dict[str, ActorEntry]) -> None:
    up = add_command(
        commands,
        "up",
        "start a bus, a harness, all other actors, and your agents, here",
        "  sandstream up                      a bus, a harness, and the other actors\n"
        "  sandstream up app.py --replicas 4  serves app.py, four harness processes\n"
        "  NATS_URL=nats://host:4222 sandstream up app.py",
        module="commands.up.command",
        json="one line on stdout when it is ready",
    )
    up.add_argument("apps", nargs="*", metavar="app.py", help="Python files with agents to serve")
    up.add_argument("--pool", default="main", help="the harness pool (main)")
    up.add_argument(
        "--replicas", type=positive, default=1, metavar="N", help="harness processes (1)"
    )
    up.add_argument("--parent-pipe", type=int, help=argparse.SUPPRESS)
    for it in actors.values():
        if it.up_help:
            up.add_argument(f"--no-{it.name}", action="store_true", help=it.up_help)
