"""``sandstream sessions`` and ``sandstream session``: durable sessions with agents."""

from __future__ import annotations

import argparse
from typing import Any

from sandstream.cli.grammar import add_author, add_command, add_flag, add_optional, seconds, whole

ACTIVITIES = ("needs-you", "working", "waiting", "failed", "idle", "paused", "sleeping")
_OBJECT = "one object: the session"


def add_parser(commands: Any) -> None:
    _add_list(commands)
    session = add_command(
        commands,
        "session",
        "one durable session: begin, talk, follow, fork, move, end",
        '  sandstream session new coder "Make a blog" --attach\n'
        '  sandstream session send blog "Add a third post" --wait\n'
        "  sandstream session attach blog\n"
        "  sandstream session fork blog --turn 2\n"
        "  sandstream session switch blog docker --preview",
        module="commands.session.command",
        json="JSON lines, or one object",
    )
    actions = session.add_subparsers(dest="action", metavar="action", title="actions")
    actions.required = True
    _add_talking(actions)
    _add_looking(actions)
    _add_working(actions)
    _add_moving(actions)
    _add_ending(actions)


def _add_list(commands: Any) -> None:
    listed = add_command(
        commands,
        "sessions",
        "list durable sessions by what they do now, forks below their sources",
        "  sandstream sessions\n"
        "  sandstream sessions --activity needs-you\n"
        "  sandstream sessions --agent coder --json | jq -r .id",
        module="commands.session.lists",
        json="JSON lines",
    )
    add_flag(listed, "-a", "--all", help="archived and destroyed sessions, too")
    listed.add_argument("--agent", metavar="NAME", help="only sessions with this agent")
    listed.add_argument(
        "--activity",
        choices=ACTIVITIES,
        metavar="WHAT",
        help=f"only those that are: {', '.join(ACTIVITIES)}",
    )
    listed.add_argument("--text", help="only those whose title or last answer contains this")


def _action(
    actions: Any, name: str, summary: str, examples: str, *, json: str = _OBJECT, id: bool = True
) -> Any:
    parser = add_command(
        actions,
        name,
        summary,
        examples,
        module="commands.session.command",
        json=json,
        is_inner=True,
    )
    if id:
        parser.add_argument(
            "id", metavar="ID", help="the session, or the first characters of its id"
        )
    return parser


def option(text: str) -> tuple[str, str]:
    """``key=value``, an option of a provider."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def idle(text: str) -> float | None:
    """Seconds, or ``never``."""
    return None if text == "never" else seconds(text)


def _add_provider(parser: Any, about: str) -> None:
    parser.add_argument("--provider", metavar="NAME", help=about)
    _add_options(parser)


def _add_options(parser: Any) -> None:
    parser.add_argument(
        "--option",
        type=option,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the provider, such as image=python:3.13; VALUE may be JSON; repeatable",
    )


def _add_talking(actions: Any) -> None:
    new = _action(
        actions,
        "new",
        "begin a session with a deployed agent",
        "  sandstream session new coder\n"
        '  sandstream session new coder "Make a blog" --title Blog --id blog --attach\n'
        "  sandstream session new coder --provider docker --option image=python:3.13-slim",
        id=False,
    )
    new.add_argument("agent", metavar="AGENT", help="the name of the agent")
    new.add_argument("--title", help="a title for people (the beginning of the first message)")
    new.add_argument("--id", help="the session's id: the same id again is the same session")
    _add_provider(new, "the provider of its workspace (the agent's own)")
    new.add_argument(
        "--idle",
        type=idle,
        default=300.0,
        metavar="S",
        help="seconds without work before its workspace sleeps, or never (300)",
    )
    new.add_argument(
        "--take", choices=("all", "one"), default="all", help="messages that a turn takes (all)"
    )
    add_flag(new, "--attach", help="follow it, and send the lines that you type")
    add_optional(new, "text", metavar="TEXT", help="the first message; - reads stdin")
    sent = _action(
        actions,
        "send",
        "send a message; while a turn is at work, the message waits in the queue",
        '  sandstream session send blog "Add a third post"\n'
        "  sandstream session send blog - --wait < wishes.txt",
        json="one object: the message; with --wait also its turn and the answer",
    )
    sent.add_argument("text", metavar="TEXT", help="what to say; - reads stdin")
    sent.add_argument("--message-id", metavar="ID", help="the same id again has no effect")
    add_flag(sent, "--wait", help="wait for the answer, and print it")
    attached = _action(
        actions,
        "attach",
        "follow a session live, and send the lines that you type; Ctrl-C detaches",
        "  sandstream session attach blog\n  sandstream session attach blog --json | jq .type",
        json="events as JSON lines; nothing is read from the terminal",
    )
    attached.add_argument(
        "--since", type=whole, metavar="TURN", help="also show the turns after this one; 0: all"
    )


def _add_looking(actions: Any) -> None:
    shown = _action(
        actions, "show", "show a session and its last answer", "  sandstream session show blog"
    )
    add_flag(shown, "--history", help="also its conversation")
    turns = _action(
        actions,
        "turns",
        "list the finished turns of a session",
        "  sandstream session turns blog",
        json="JSON lines",
    )
    add_flag(turns, "-a", "--all", help="turns that a rewind took back, too")
    queue = _action(
        actions,
        "queue",
        "show the messages that wait, change one, or remove one",
        "  sandstream session queue blog\n"
        '  sandstream session queue blog --edit MSG "Add two posts"\n'
        "  sandstream session queue blog --remove MSG",
        json="JSON lines: the messages that wait",
    )
    changes = queue.add_mutually_exclusive_group()
    changes.add_argument("--edit", nargs=2, metavar=("MSG", "TEXT"), help="change a message")
    changes.add_argument("--remove", metavar="MSG", help="remove a message")


def _add_working(actions: Any) -> None:
    stopped = _action(
        actions,
        "interrupt",
        "stop the turn at work and its commands; waiting messages stay",
        '  sandstream session interrupt blog --reason "wrong folder"',
    )
    stopped.add_argument("--reason", default="", help="why, for the log")
    _action(
        actions,
        "pause",
        "take no more turns, and put the workspace to sleep",
        "  sandstream session pause blog",
    )
    _action(
        actions,
        "wake",
        "continue a paused session, and open its workspace",
        "  sandstream session wake blog",
    )
    renamed = _action(
        actions, "rename", "give a session another title", '  sandstream session rename blog "Blog"'
    )
    renamed.add_argument("title", metavar="TITLE", help="the new title")
    for verb, what in (("approve", "allow"), ("reject", "refuse")):
        decided = _action(
            actions,
            verb,
            f"{what} a call of the turn at work that waits for a person",
            f"  sandstream session {verb} blog\n  sandstream session {verb} blog t2-0",
            json="one object: the call",
        )
        add_optional(decided, "call", metavar="CALL", help="its id, if several calls wait")
        add_flag(decided, "--always", help="also later calls of this tool")
        if verb == "reject":
            decided.add_argument("--message", metavar="TEXT", help="what the model is told")
        add_author(decided)


def _add_moving(actions: Any) -> None:
    forked = _action(
        actions,
        "fork",
        "begin a new session as a copy of this one",
        "  sandstream session fork blog\n"
        '  sandstream session fork blog --turn 2 --title "Tests first" --provider docker',
        json="one object: the new session",
    )
    forked.add_argument("--turn", type=whole, metavar="N", help="as it was after turn N (now)")
    forked.add_argument("--title", help="the title of the fork")
    forked.add_argument("--new-id", metavar="ID", help="the id of the fork")
    _add_provider(forked, "the provider of the new workspace (the same)")
    switched = _action(
        actions,
        "switch",
        "move the workspace to another provider, after the turn at work",
        "  sandstream session switch blog docker --preview\n"
        "  sandstream session switch blog docker --option image=python:3.13-slim",
        json="one object: the session, or with --preview what would be lost",
    )
    switched.add_argument("provider", metavar="PROVIDER", help="the provider to move to")
    add_flag(switched, "--preview", help="only tell what does not carry over")
    _add_options(switched)
    rewound = _action(
        actions,
        "rewind",
        "restore the conversation and the files as they were after a turn",
        "  sandstream session rewind blog 2",
    )
    rewound.add_argument("turn", type=whole, metavar="TURN", help="the last turn that stays; 0")


def _add_ending(actions: Any) -> None:
    _action(
        actions,
        "archive",
        "hide a session from lists; its next message brings it back",
        "  sandstream session archive blog",
    )
    destroyed = _action(
        actions,
        "destroy",
        "end a session and delete its workspace; forks of it stay",
        "  sandstream session destroy blog --yes",
    )
    add_flag(destroyed, "-y", "--yes", help="do not ask")
