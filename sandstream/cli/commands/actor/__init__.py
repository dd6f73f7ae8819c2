"""``sandstream actor``: one replica of an actor."""

from __future__ import annotations

import argparse
from typing import Any

from sandstream_actors.registry import ActorEntry, add_options

from sandstream.cli.grammar import add_command, positive


def add_parser(commands: Any, actors: dict[str, ActorEntry]) -> None:
    actor = add_command(
        commands,
        "actor",
        "start one replica of an actor",
        "\n".join(
            [
                "  sandstream actor                            list the kinds of actors",
                *(it.examples for it in actors.values() if it.examples),
            ]
        ),
        module="commands.actor.command",
        json="one line on stdout when it is ready",
    )
    actor.add_argument("kind", nargs="?", help=f"{', '.join(actors)}; without: list them")
    actor.add_argument(
        "--concurrency",
        type=positive,
        default=256,
        metavar="N",
        help="turns or operations at once (256)",
    )
    add_options(actor, actors)
    actor.add_argument("--parent-pipe", type=int, help=argparse.SUPPRESS)
