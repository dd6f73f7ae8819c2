"""``sandstream sandboxes``: list, inspect, use and remove sandboxes."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_command, add_flag, seconds, span


def add_parser(commands: Any) -> None:
    """The command with all its actions."""
    sandboxes = add_command(
        commands,
        "sandboxes",
        "sandboxes of agents: list, show, run a command, remove",
        "  sandstream sandboxes\n"
        "  sandstream sandboxes show SANDBOX\n"
        "  sandstream sandboxes exec SANDBOX -- ls -la\n"
        "  sandstream sandboxes rm SANDBOX --yes",
        module="commands.sandboxes.command",
        json="JSON lines, or one object",
    )
    add_flag(sandboxes, "-a", "--all", help="also those that were deleted")
    actions = sandboxes.add_subparsers(dest="action", metavar="action", title="actions (ls)")
    listed = _action(
        actions,
        "ls",
        "list sandboxes, the latest change first",
        "  sandstream sandboxes ls --all --json | jq -r .sandbox",
        json="JSON lines",
    )
    add_flag(listed, "-a", "--all", help="also those that were deleted", is_inner=True)
    shown = _action(
        actions,
        "show",
        "show a sandbox: its state and its events",
        "  sandstream sandboxes show SANDBOX",
        json="one object: the sandbox and its events",
    )
    shown.add_argument(
        "id", metavar="SANDBOX", help="the id of the sandbox, or of the run that uses it"
    )
    removed = _action(
        actions,
        "rm",
        "remove a sandbox permanently: its processes, files and record",
        "  sandstream sandboxes rm SANDBOX\n  sandstream sandboxes rm SANDBOX --yes",
        json="one object: the sandbox after its removal",
    )
    removed.add_argument(
        "id", metavar="SANDBOX", help="the id of the sandbox, or of the run that uses it"
    )
    removed.add_argument("-y", "--yes", action="store_true", help="do not ask")
    executed = _action(
        actions,
        "exec",
        "run a command in a sandbox and exit with its exit code",
        "  sandstream sandboxes exec SANDBOX -- ls -la\n"
        "  sandstream sandboxes exec SANDBOX --cwd src -- sh -c 'make 2>&1 | tail'",
        json="one object: exit code and output, as text",
    )
    executed.add_argument(
        "id", metavar="SANDBOX", help="the id of the sandbox, or of the run that uses it"
    )
    executed.add_argument("argv", nargs="+", metavar="command", help="after --, with its arguments")
    executed.add_argument(
        "--cwd", default="", metavar="DIR", help="the working directory (the root)"
    )
    executed.add_argument("--timeout", type=span, metavar="S", help="kill it after S seconds")
    reaped = _action(
        actions,
        "reap",
        "list what sandbox actors here would clean up, also at vendors; do it with --yes",
        "  sandstream sandboxes reap\n  sandstream sandboxes reap --yes",
        json="JSON lines, one for each box",
    )
    reaped.add_argument("-y", "--yes", action="store_true", help="do it now")
    reaped.add_argument(
        "--grace",
        type=seconds,
        default=600.0,
        metavar="S",
        help="keep boxes younger than S seconds (600)",
    )


def _action(actions: Any, name: str, summary: str, examples: str, *, json: str) -> Any:
    return add_command(
        actions,
        name,
        summary,
        examples,
        module="commands.sandboxes.command",
        json=json,
        is_inner=True,
    )
