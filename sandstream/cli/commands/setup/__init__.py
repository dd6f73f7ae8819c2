"""``sandstream setup``: streams, users and permissions of an installation."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_command, age_days, positive


def add_parser(commands: Any) -> None:
    setup = add_command(
        commands,
        "setup",
        "create or change the streams of an installation (no other command does)",
        "  sandstream setup --replicas 3 --max-age-days 90  on a new NATS cluster\n"
        "  sandstream setup --check                         only say what would change\n"
        "  sandstream setup --max-bytes 50GB --yes          without a question\n"
        "  sandstream setup --print-auth --grant alice=submit,follow",
        module="commands.setup.command",
        json="JSON lines, one for each change",
    )
    setup.add_argument(
        "--replicas",
        type=positive,
        metavar="N",
        help="copies of each stream; above 1: on a cluster (new: SANDSTREAM_REPLICAS, else 1)",
    )
    setup.add_argument(
        "--max-age-days",
        type=age_days,
        metavar="DAYS",
        help="how long events are kept; 0: for ever (new: SANDSTREAM_MAX_AGE_DAYS, else 30)",
    )
    setup.add_argument(
        "--max-bytes",
        metavar="SIZE",
        help="space of all streams on each server, e.g. 50GB; 0: no limit "
        "(new: SANDSTREAM_MAX_BYTES, else no limit)",
    )
    setup.add_argument(
        "--check",
        action="store_true",
        help="only show what would change; exit code 1 if anything would",
    )
    setup.add_argument("--yes", action="store_true", help="do not ask before data is lost")
    setup.add_argument(
        "--print-auth",
        action="store_true",
        help="print accounts, users and permissions for the NATS server's configuration, with new "
        "passwords; needs no server",
    )
    setup.add_argument(
        "--auth-dir",
        metavar="DIR",
        help="write them to DIR/auth.conf, and what each user's process needs to DIR/NAME.env; "
        "users that are there keep their passwords",
    )
    setup.add_argument(
        "--grant",
        action="append",
        default=[],
        metavar="NAME=ROLES",
        help="a user and its roles, e.g. alice=submit,follow,approve; again for more",
    )
    setup.add_argument(
        "--tenant",
        action="append",
        default=[],
        metavar="NAME[=SIZE]",
        help="separate accounts for each tenant, with that much space for its streams (10GB)",
    )
