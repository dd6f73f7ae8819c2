"""The grammar of ``sandboxes`` and ``artifacts``, which have actions of their own."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_flag, command, seconds


def add_sandboxes(commands: Any) -> None:
    """Both commands with all their actions."""
    _add_sandboxes(commands)
    _add_artifacts(commands)


# --- sandboxes ------------------------------------------------------------------------------------


def _add_sandboxes(commands: Any) -> None:
    sandboxes = command(
        commands,
        "sandboxes",
        "sandboxes of agents: list, look, run a command, remove",
        "  sandstream sandboxes\n"
        "  sandstream sandboxes show SANDBOX\n"
        "  sandstream sandboxes exec SANDBOX -- ls -la\n"
        "  sandstream sandboxes rm SANDBOX --yes",
        module="sandboxes",
        json="JSON lines, or one object",
    )
    add_flag(sandboxes, "-a", "--all", help="also those that were deleted")
    actions = sandboxes.add_subparsers(dest="action", metavar="action", title="actions (ls)")
    listed = _action(
        actions,
        "sandboxes ls",
        "list sandboxes, what changed last first",
        "  sandstream sandboxes ls --all --json | jq -r .sandbox",
        json="JSON lines",
    )
    add_flag(listed, "-a", "--all", help="also those that were deleted", is_inner=True)
    shown = _action(
        actions,
        "sandboxes show",
        "show a sandbox: what it is and what happened to it",
        "  sandstream sandboxes show SANDBOX",
        json="one object: the sandbox and its events",
    )
    shown.add_argument("id", metavar="SANDBOX", help="its id, or that of the run that has it")
    removed = _action(
        actions,
        "sandboxes rm",
        "remove a sandbox for good: its processes, its files, its record",
        "  sandstream sandboxes rm SANDBOX\n  sandstream sandboxes rm SANDBOX --yes",
        json="one object: the sandbox as it is then",
    )
    removed.add_argument("id", metavar="SANDBOX", help="its id, or that of the run that has it")
    removed.add_argument("-y", "--yes", action="store_true", help="do not ask")
    executed = _action(
        actions,
        "sandboxes exec",
        "run a command in a sandbox; its exit code is the command's",
        "  sandstream sandboxes exec SANDBOX -- ls -la\n"
        "  sandstream sandboxes exec SANDBOX --cwd src -- sh -c 'make 2>&1 | tail'",
        json="one object: exit code and output, as text",
    )
    executed.add_argument("id", metavar="SANDBOX", help="its id, or that of the run that has it")
    executed.add_argument("argv", nargs="+", metavar="command", help="after --, with its arguments")
    executed.add_argument("--cwd", default="", metavar="DIR", help="where it starts (the root)")
    executed.add_argument("--timeout", type=seconds, metavar="S", help="kill it after S seconds")
    reaped = _action(
        actions,
        "sandboxes reap",
        "what this machine's sandbox actor would clean up, now or with --yes",
        "  sandstream sandboxes reap\n  sandstream sandboxes reap --yes",
        json="JSON lines, one for each box of this machine",
    )
    reaped.add_argument("-y", "--yes", action="store_true", help="do it now")
    reaped.add_argument(
        "--grace",
        type=seconds,
        default=600.0,
        metavar="S",
        help="keep what is younger than S seconds (600)",
    )


# --- artifacts ------------------------------------------------------------------------------------


def _add_artifacts(commands: Any) -> None:
    artifacts = command(
        commands,
        "artifacts",
        "what agents made in their sandboxes: list, get, compare; from checkpoints",
        "  sandstream artifacts ls RUN\n"
        "  sandstream artifacts get RUN report.pdf\n"
        "  sandstream artifacts get RUN src -o copy\n"
        "  sandstream artifacts diff RUN",
        module="artifacts",
        json="JSON lines, or one object",
    )
    actions = artifacts.add_subparsers(
        dest="action", metavar="action", title="actions", required=True
    )
    listed = _action(
        actions,
        "artifacts ls",
        "list the files of a workspace",
        "  sandstream artifacts ls RUN\n  sandstream artifacts ls RUN src --recursive",
        json="JSON lines",
    )
    _add_place(listed, path="the directory, or one file (the whole workspace)", optional=True)
    listed.add_argument("-r", "--recursive", action="store_true", help="all that is below it, too")
    got = _action(
        actions,
        "artifacts get",
        "copy a file or a directory of a workspace to this machine",
        "  sandstream artifacts get RUN report.pdf\n"
        "  sandstream artifacts get RUN notes.md -o -\n"
        "  sandstream artifacts get RUN src -o copy-of-src\n"
        "  sandstream artifacts get RUN --tar -o workspace.tar",
        json="one object: what was written",
    )
    _add_place(got, path="the file or directory", optional=True)
    got.add_argument("-o", "--output", metavar="TO", help="a file, a directory, or - for stdout")
    got.add_argument("-f", "--force", action="store_true", help="overwrite files")
    got.add_argument("--tar", action="store_true", help="as a tar file: the workspace, or PATH")
    compared = _action(
        actions,
        "artifacts diff",
        "which files changed between two checkpoints",
        "  sandstream artifacts diff RUN                 the last against the one before\n"
        "  sandstream artifacts diff RUN --from 3fa9c1",
        json="one object: added, changed, removed",
    )
    compared.add_argument("id", metavar="RUN", help="the id of a run or of a sandbox")
    compared.add_argument("--from", dest="before", metavar="DIGEST", help="the older checkpoint")
    compared.add_argument("--to", dest="after", metavar="DIGEST", help="the newer one (the last)")
    output = _action(
        actions,
        "artifacts output",
        "the whole output of a command that the model saw shortened",
        "  sandstream artifacts output RUN CALL\n  sandstream artifacts output RUN CALL -o log.txt",
        json="one object",
    )
    output.add_argument("id", metavar="RUN", help="the id of the run")
    output.add_argument("call", metavar="CALL", help="as `sandstream show RUN` tells it")
    output.add_argument("-o", "--output", metavar="FILE", help="instead of stdout")
    output.add_argument("-f", "--force", action="store_true", help="overwrite the file")


def _add_place(parser: Any, *, path: str, optional: bool) -> None:
    parser.add_argument("id", metavar="RUN", help="the id of a run or of a sandbox")
    parser.add_argument(
        "path", nargs="?" if optional else None, default="", metavar="PATH", help=path
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIGEST",
        help="not the last one but this (see `sandboxes show`); its first digits will do",
    )


def _action(actions: Any, name: str, summary: str, examples: str, *, json: str) -> Any:
    module, _, action = name.partition(" ")
    return command(actions, action, summary, examples, module=module, json=json, is_inner=True)
