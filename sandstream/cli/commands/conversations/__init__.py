"""``sandstream conversations``: list, show and remove conversations."""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_author, add_command, add_flag, positive


def add_parser(commands: Any) -> None:
    conversations = add_command(
        commands,
        "conversations",
        "conversations that runs continue: list, show, clear",
        "  sandstream conversations\n"
        "  sandstream conversations show customer-17\n"
        "  sandstream conversations clear customer-17 --yes",
        module="commands.conversations.command",
        json="JSON lines, or one object",
    )
    actions = conversations.add_subparsers(dest="action", metavar="action", title="actions (ls)")
    listed = _action(
        actions,
        "ls",
        "list conversations by name",
        "  sandstream conversations ls --limit 500 --json | jq -r .session",
        json="JSON lines",
    )
    listed.add_argument("--limit", type=positive, default=50, metavar="N", help="at most N (50)")
    shown = _action(
        actions,
        "show",
        "show a conversation: its items, and the runs that use it or wait for it",
        "  sandstream conversations show customer-17",
        json="one object",
    )
    shown.add_argument("session", metavar="ID", help="the conversation's id")
    cleared = _action(
        actions,
        "clear",
        "remove all items of a conversation, unless a run is using it",
        "  sandstream conversations clear customer-17 --yes",
        json="one object: the cleared conversation",
    )
    cleared.add_argument("session", metavar="ID", help="the conversation's id")
    add_flag(cleared, "-y", "--yes", help="do not ask")
    add_author(cleared)


def _action(actions: Any, name: str, summary: str, examples: str, *, json: str) -> Any:
    return add_command(
        actions,
        name,
        summary,
        examples,
        module="commands.conversations.command",
        json=json,
        is_inner=True,
    )
