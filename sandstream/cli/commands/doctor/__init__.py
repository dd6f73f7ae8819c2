"""``sandstream doctor``: what works, what does not, what to do."""

from __future__ import annotations

import argparse
from typing import Any

from sandstream.cli.grammar import add_command


def add_parser(commands: Any) -> None:
    doctor = add_command(
        commands,
        "doctor",
        "check this installation and say what to do",
        "  sandstream doctor\n"
        "  sandstream doctor --json | jq 'select(.state != \"ok\")'\n"
        "  sandstream doctor --monitor http://127.0.0.1:8222   how often the server syncs",
        module="commands.doctor.command",
        json="JSON lines, one for each check",
    )
    doctor.add_argument(
        "--monitor",
        metavar="URL",
        default=argparse.SUPPRESS,
        help="the HTTP monitoring of the NATS servers, separated by commas, instead of "
        "NATS_MONITOR_URL",
    )
