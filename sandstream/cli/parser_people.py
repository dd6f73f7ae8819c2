"""The grammar of what people say to runs: ``approvals``, ``approve``, ``reject``, ``send``; and of
``conversations``.
"""

from __future__ import annotations

from typing import Any

from sandstream.cli.grammar import add_flag, command, positive


def add_people(commands: Any) -> None:
    """All commands that are about people and what they say."""
    _add_approvals(commands)
    _add_decisions(commands)
    _add_send(commands)
    _add_conversations(commands)


def _add_approvals(commands: Any) -> None:
    approvals = command(
        commands,
        "approvals",
        "list the calls that wait for a person, newest first",
        "  sandstream approvals\n  sandstream approvals --json | jq -r .run_id",
        module="approvals",
        json="JSON lines",
    )
    approvals.add_argument("--limit", type=positive, default=50, metavar="N", help="at most N (50)")


def _add_decisions(commands: Any) -> None:
    approve = command(
        commands,
        "approve",
        "let a run make a call that waits for a person",
        "  sandstream approve RUN               the one call that waits\n"
        "  sandstream approve RUN t2-0          one of several\n"
        "  sandstream approve RUN --always      and all later calls of this tool in the run",
        module="decide",
        json="one object: what was decided",
    )
    approve.set_defaults(approve=True, message=None)
    _add_call(approve)
    approve.add_argument("--always", action="store_true", help="also later calls of this tool")
    reject = command(
        commands,
        "reject",
        "refuse a call that waits for a person; the model is told",
        "  sandstream reject RUN\n"
        '  sandstream reject RUN t2-0 --message "Not on a Friday. Ask again on Monday."',
        module="decide",
        json="one object: what was decided",
    )
    reject.set_defaults(approve=False)
    _add_call(reject)
    reject.add_argument(
        "--message", metavar="TEXT", help="what the model reads instead of a result"
    )
    reject.add_argument("--always", action="store_true", help="also later calls of this tool")


def _add_call(parser: Any) -> None:
    parser.add_argument("run", metavar="RUN", help="the run, or one above it in its tree")
    parser.add_argument(
        "call",
        nargs="?",
        metavar="CALL",
        help="as `sandstream approvals` shows it, if there are several",
    )
    _add_name(parser)


def _add_name(parser: Any) -> None:
    parser.add_argument(
        "--as", dest="by", metavar="NAME", help="who says it, for the log (your login name)"
    )


def _add_send(commands: Any) -> None:
    send = command(
        commands,
        "send",
        "say something to a run under way; its next model call sees it",
        '  sandstream send RUN "Also look at Bern."\n  sandstream send RUN - < more.txt',
        module="send",
        json="one object: where it is in the log",
    )
    send.add_argument("run", metavar="RUN", help="the run's id")
    send.add_argument("input", metavar="TEXT", help="what to say; - reads stdin")
    _add_name(send)


def _add_conversations(commands: Any) -> None:
    conversations = command(
        commands,
        "conversations",
        "conversations that runs continue: list, read, begin anew",
        "  sandstream conversations\n"
        "  sandstream conversations show customer-17\n"
        "  sandstream conversations clear customer-17 --yes",
        module="conversations",
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
        "show a conversation: what was said, and which runs have it or wait for it",
        "  sandstream conversations show customer-17",
        json="one object",
    )
    shown.add_argument("session", metavar="ID", help="the conversation's id")
    cleared = _action(
        actions,
        "clear",
        "forget what was said in a conversation; not while a run has it",
        "  sandstream conversations clear customer-17 --yes",
        json="one object: the conversation as it is then",
    )
    cleared.add_argument("session", metavar="ID", help="the conversation's id")
    add_flag(cleared, "-y", "--yes", help="do not ask")
    _add_name(cleared)


def _action(actions: Any, name: str, summary: str, examples: str, *, json: str) -> Any:
    return command(
        actions, name, summary, examples, module="conversations", json=json, is_inner=True
    )
