"""``sandstream artifacts``: files that agents made."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_command

_MODULE = "commands.artifacts.command"


def add_parser(commands: Any) -> None:
    artifacts = add_command(
        commands,
        "artifacts",
        "files of agents' workspaces: list, get or compare checkpoints",
        "  sandstream artifacts ls RUN\n"
        "  sandstream artifacts get RUN report.pdf\n"
        "  sandstream artifacts get RUN src -o copy\n"
        "  sandstream artifacts diff RUN",
        module=_MODULE,
        json="JSON lines, or one object",
    )
    actions = artifacts.add_subparsers(
        dest="action", metavar="action", title="actions", required=True
    )
    listed = _action(
        actions,
        "ls",
        "list the files of a workspace",
        "  sandstream artifacts ls RUN\n  sandstream artifacts ls RUN src --recursive",
        json="JSON lines",
    )
    _add_place(listed, "the directory, or one file (the whole workspace)")
    listed.add_argument(
        "-r", "--recursive", action="store_true", help="include everything below it"
    )
    got = _action(
        actions,
        "get",
        "copy a file or a directory of a workspace to this machine",
        "  sandstream artifacts get RUN report.pdf\n"
        "  sandstream artifacts get RUN notes.md -o -\n"
        "  sandstream artifacts get RUN src -o copy-of-src\n"
        "  sandstream artifacts get RUN --tar -o workspace.tar",
        json="one object: what was written",
    )
    _add_place(got, "the file or directory")
    got.add_argument("-o", "--output", metavar="TO", help="a file, a directory, or - for stdout")
    got.add_argument("-f", "--force", action="store_true", help="overwrite files")
    got.add_argument("--tar", action="store_true", help="as a tar file: the workspace, or PATH")
    compared = _action(
        actions,
        "diff",
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
        "output",
        "the whole output of a command that the model saw shortened",
        "  sandstream artifacts output RUN CALL\n  sandstream artifacts output RUN CALL -o log.txt",
        json="one object",
    )
    output.add_argument("id", metavar="RUN", help="the id of the run")
    output.add_argument("call", metavar="CALL", help="the call's id in `sandstream show RUN`")
    output.add_argument("-o", "--output", metavar="FILE", help="instead of stdout")
    output.add_argument("-f", "--force", action="store_true", help="overwrite the file")


def _add_place(parser: Any, path: str) -> None:
    parser.add_argument("id", metavar="RUN", help="the id of a run or of a sandbox")
    parser.add_argument("path", nargs="?", default="", metavar="PATH", help=path)
    parser.add_argument(
        "--checkpoint",
        metavar="DIGEST",
        help="a checkpoint other than the last (see `sandboxes show`); its first digits suffice",
    )


def _action(actions: Any, name: str, summary: str, examples: str, *, json: str) -> Any:
    return add_command(actions, name, summary, examples, module=_MODULE, json=json, is_inner=True)
