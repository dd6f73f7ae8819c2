"""``sandstream memory``: what agents remember."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_command, add_flag, add_optional, positive, span


def add_parser(commands: Any) -> None:
    """The command with all its actions."""
    memory = add_command(
        commands,
        "memory",
        "memories of agents: list, show, compare, undo, remove, consolidate",
        "  sandstream memory\n"
        "  sandstream memory show user-42\n"
        "  sandstream memory diff user-42\n"
        "  sandstream memory undo user-42\n"
        "  sandstream memory rm user-42 --run RUN --yes",
        module="commands.memory.command",
        json="JSON lines, or one object",
    )
    add_flag(memory, "-a", "--all", help="include memories of workspaces")
    actions = memory.add_subparsers(dest="action", metavar="action", title="actions (ls)")
    _add_looking(actions)
    _add_changing(actions)


def _add_looking(actions: Any) -> None:
    listed = _action(
        actions,
        "ls",
        "list memories, the latest change first",
        "  sandstream memory ls --all --json | jq -r .scope",
        json="JSON lines",
    )
    add_flag(listed, "-a", "--all", help="include memories of workspaces", is_inner=True)
    shown = _action(
        actions,
        "show",
        "show a memory: its text, its sources, or one of its files",
        "  sandstream memory show user-42\n"
        "  sandstream memory show user-42 MEMORY.md\n"
        "  sandstream memory show user-42 raw_memories      the files there\n"
        "  sandstream memory show user-42 --raw > memory_summary.md",
        json="one object: the memory and its text, or the file",
    )
    _add_scope(shown)
    add_optional(shown, "path", default="", metavar="PATH", help="a file of it, or a directory")
    add_flag(shown, "-a", "--all", help="list all rollouts and files", is_inner=True)
    shown.add_argument(
        "--raw", action="store_true", help="only the file (memory_summary.md), as it is"
    )
    compared = _action(
        actions,
        "diff",
        "show how a revision changed the files of a memory",
        "  sandstream memory diff user-42           the last change\n"
        "  sandstream memory diff user-42 7\n"
        "  sandstream memory diff user-42 --list    all that are kept",
        json="one object: the change and its diff; with --list JSON lines",
    )
    _add_scope(compared)
    _add_revision(compared, "the last change")
    compared.add_argument("--list", action="store_true", help="only list the revisions")


def _add_changing(actions: Any) -> None:
    undone = _action(
        actions,
        "undo",
        "undo a revision of a memory; this creates a new revision",
        "  sandstream memory undo user-42      again: the one before\n"
        "  sandstream memory undo user-42 7",
        json="one object: the new change, and which files it changed",
    )
    _add_scope(undone)
    _add_revision(undone, "the last one that was not undone")
    _add_name(undone)
    removed = _action(
        actions,
        "rm",
        "remove a memory, or everything in it that came from a run or a rollout",
        "  sandstream memory rm user-42\n"
        "  sandstream memory rm user-42 --run RUN\n"
        "  sandstream memory rm user-42 --rollout ID --yes",
        json="one object: what was removed",
    )
    _add_scope(removed)
    part = removed.add_mutually_exclusive_group()
    part.add_argument("--run", metavar="RUN", help="only what came from this run")
    part.add_argument("--rollout", metavar="ID", help="only what came from this rollout")
    removed.add_argument("-y", "--yes", action="store_true", help="do not ask")
    _add_name(removed)
    merged = _action(
        actions,
        "merge",
        "consolidate now what was extracted since the last consolidation",
        "  sandstream memory merge user-42\n  sandstream memory merge user-42 --wait --timeout 300",
        json="one object: the memory",
    )
    _add_scope(merged)
    merged.add_argument(
        "--again", action="store_true", help="even if nothing is new, for example after an undo"
    )
    merged.add_argument("--wait", action="store_true", help="wait until it is done or has failed")
    merged.add_argument("--timeout", type=span, metavar="S", help="with --wait: at most S s")


def _add_scope(parser: Any) -> None:
    parser.add_argument(
        "scope",
        metavar="SCOPE",
        help="its name; for the memory of a workspace also the sandbox or run id",
    )


def _add_revision(parser: Any, default: str) -> None:
    add_optional(
        parser,
        "revision",
        type=positive,
        metavar="REVISION",
        help=f"as `memory diff SCOPE --list` shows it ({default})",
    )


def _add_name(parser: Any) -> None:
    parser.add_argument(
        "--as",
        dest="by",
        metavar="NAME",
        help="the person's name, for the history (your login name)",
    )


def _action(actions: Any, name: str, summary: str, examples: str, *, json: str) -> Any:
    return add_command(
        actions, name, summary, examples, module="commands.memory.command", json=json, is_inner=True
    )
