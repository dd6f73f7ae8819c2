"""``sandstream session show``, ``turns`` and ``queue``: what a session is and has."""

from __future__ import annotations

import argparse

from sandstream_bus.wire.sessions import QueuedMessage, SessionTurn

from sandstream._inspect.texts import call_text, count
from sandstream.cli.commands.session.texts import put_facts
from sandstream.cli.exits import Exit
from sandstream.cli.session import put_json, say
from sandstream.cli.terminal.conversation_blocks import print_items
from sandstream.cli.terminal.render import Cell, Column, Row, age, clean, one_line, out, table
from sandstream.cli.terminal.run_table import STATUS_STYLES
from sandstream.sessions.durable_session import DurableSession

_TURNS = [
    Column("TURN", ">"),
    Column("STATUS"),
    Column("ASKED", shrinks=12),
    Column("TOKENS", ">", drops=4),
    Column("CHECKPOINT", drops=3),
    Column("ENDED", ">", drops=2),
    Column("RUN", shrinks=12, drops=5),
    Column("ANSWER", shrinks=12, drops=1),
]
_QUEUE = [Column("MESSAGE", shrinks=8), Column("FROM", drops=1), Column("TEXT", shrinks=12)]
_DIGITS = 12
"""How much of a checkpoint's digest is shown."""


async def show(session: DurableSession, arguments: argparse.Namespace) -> int:
    """One session, and what it needs from a person."""
    info = await session.info()
    history = await session.history() if arguments.history else []
    if arguments.json:
        put_json({"session": info, "history": history} if arguments.history else info)
        return Exit.OK
    screen = out()
    put_facts(screen, info)
    if history:
        screen.line()
        print_items(screen, history)
    elif info.said:
        screen.line()
        screen.line(clean(info.said))
    for it in await session.approvals():
        screen.line()
        screen.line(screen.paint(f"asks: {one_line(call_text(it.tool, it.arguments))}", "yellow"))
        say(f"sandstream session approve {session.id} {it.call}   (or reject)")
    return Exit.OK


async def show_turns(session: DurableSession, arguments: argparse.Namespace) -> int:
    """The finished turns as a table."""
    counted = await session.turns()
    found = await session.turns(rewound=True) if arguments.all else counted
    if arguments.json:
        for turn in found:
            put_json(turn)
        return Exit.OK
    if not found:
        say(f"session {session.id} has no finished turn")
        return Exit.OK
    numbers = {it.number for it in counted}
    screen = out()
    for line in table(screen, _TURNS, [_turn(it, it.number in numbers) for it in found]):
        screen.line(line)
    return Exit.OK


def _turn(turn: SessionTurn, counts: bool) -> Row:
    status = turn.status.replace("_", " ") if counts else "taken back"
    asked = " / ".join(it.input for it in turn.input)
    return [
        Cell(str(turn.number)),
        Cell(status, STATUS_STYLES[turn.status] if counts else "dim"),
        Cell(asked),
        Cell(count(turn.usage.total_tokens)),
        Cell(turn.tree[:_DIGITS] or (f"none: {turn.unsaved}" if turn.unsaved else "-"), "dim"),
        Cell(age(turn.ended)),
        Cell(turn.run, "dim"),
        Cell(turn.said),
    ]


async def show_queue(session: DurableSession, arguments: argparse.Namespace) -> int:
    """The messages that wait, after the change that was asked for."""
    if arguments.edit is not None:
        message, text = arguments.edit
        waiting = (await session.edit(message, text)).queue
    elif arguments.remove is not None:
        waiting = (await session.remove(arguments.remove)).queue
    else:
        waiting = await session.queue()
    if arguments.json:
        for it in waiting:
            put_json(it)
        return Exit.OK
    if not waiting:
        say(f"no message waits in session {session.id}")
        return Exit.OK
    screen = out()
    for line in table(screen, _QUEUE, [_message(it) for it in waiting]):
        screen.line(line)
    return Exit.OK


def _message(message: QueuedMessage) -> Row:
    return [Cell(message.id, "bold"), Cell(message.by or "-", "dim"), Cell(message.input)]
