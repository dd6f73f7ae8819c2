"""``sandstream approvals``, ``approve`` and ``reject``: questions to people."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_author, add_command, positive


def add_parser(commands: Any) -> None:
    approvals = add_command(
        commands,
        "approvals",
        "list the calls that wait for a person, newest first",
        "  sandstream approvals\n  sandstream approvals --json | jq -r .run_id",
        module="commands.approvals.command",
        json="JSON lines",
    )
    approvals.add_argument("--limit", type=positive, default=50, metavar="N", help="at most N (50)")
    _add_decisions(commands)


def _add_decisions(commands: Any) -> None:
    approve = add_command(
        commands,
        "approve",
        "let a run make a call that waits for a person",
        "  sandstream approve RUN               the one call that waits\n"
        "  sandstream approve RUN t2-0          one of several\n"
        "  sandstream approve RUN --always      and all later calls of this tool",
        module="commands.approvals.decide",
        json="one object: what was decided",
    )
    approve.set_defaults(approve=True, message=None)
    _add_call(approve)
    approve.add_argument("--always", action="store_true", help="also later calls of this tool")
    reject = add_command(
        commands,
        "reject",
        "refuse a call that waits for a person, and tell the model",
        "  sandstream reject RUN\n"
        '  sandstream reject RUN t2-0 --message "Not on a Friday. Ask again on Monday."',
        module="commands.approvals.decide",
        json="one object: what was decided",
    )
    reject.set_defaults(approve=False)
    _add_call(reject)
    reject.add_argument(
        "--message", metavar="TEXT", help="the text that the model gets instead of a result"
    )
    reject.add_argument("--always", action="store_true", help="also later calls of this tool")


def _add_call(parser: Any) -> None:
    parser.add_argument("run", metavar="RUN", help="the run, or one above it in its tree")
    parser.add_argument(
        "call",
        nargs="?",
        metavar="CALL",
        help="the call's id in `sandstream approvals`, if several calls wait",
    )
    add_author(parser)
