"""``sandstream conversations``: conversations on the bus."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec
from sandstream_bus.counts import numbered
from sandstream_bus.logs.conversations import Conversation

from sandstream._inspect.texts import item_text
from sandstream.cli.commands.approvals.decisions import decider
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import connected, put_json, readable, run_async, say
from sandstream.cli.suggestions import did_you_mean
from sandstream.cli.terminal.confirmation import confirm
from sandstream.cli.terminal.conversation_blocks import ROLE_WIDTH, print_items
from sandstream.cli.terminal.render import Cell, Column, clean, out, pad, table
from sandstream.client import Client

_COLUMNS = [
    Column("CONVERSATION", shrinks=16),
    Column("ITEMS", ">"),
    Column("RUN", shrinks=12, drops=2),
    Column("QUEUED", ">", drops=3),
    Column("LAST SAID", shrinks=12, drops=1),
]
_LIMIT = 50


class ConversationSummary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One conversation as ``--json`` prints it."""

    session: str
    items: int
    run: str = ""
    """The run that has it now."""
    queued: list[str] = []
    """Runs that wait for it, in order."""
    last: Any = None
    """The last item."""
    history: list[Any] = []
    """All items, if only this conversation was requested."""


def main(arguments: argparse.Namespace) -> int:
    match arguments.action:
        case "show":
            work = _show(arguments)
        case "clear":
            work = _clear(arguments)
        case _:
            work = _list(arguments)
    return run_async(work, debug=arguments.debug)


async def _list(arguments: argparse.Namespace) -> int:
    limit: int = getattr(arguments, "limit", _LIMIT)
    async with connected() as client:
        names = await client.bus.conversations.names()
        found = [_summary(await client.bus.conversations.read(it)) for it in names[:limit]]
    if arguments.json:
        for summary in found:
            put_json(summary)
        return Exit.OK
    if not found:
        say('no conversations; begin one: sandstream submit AGENT "hello" --session ID')
        return Exit.OK
    screen = out()
    for line in table(screen, _COLUMNS, [_row(summary) for summary in found]):
        screen.line(line)
    if len(names) > limit:
        say(f"… {len(names) - limit} more (--limit)")
    return Exit.OK


def _row(summary: ConversationSummary) -> list[Cell]:
    return [
        Cell(summary.session, "bold"),
        Cell(str(summary.items)),
        Cell(summary.run or "-", "cyan" if summary.run else "dim"),
        Cell(str(len(summary.queued)) if summary.queued else ""),
        Cell("" if summary.last is None else item_text(summary.last), "dim"),
    ]


async def _show(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        conversation = await _found(client, arguments.session)
    history = [msgspec.json.decode(item) for item in conversation.history]
    summary = _summary(conversation)
    if arguments.json:
        put_json(msgspec.structs.replace(summary, history=history))
        return Exit.OK
    screen = out()
    facts = [
        ("session", screen.paint(clean(summary.session), "bold")),
        ("items", str(summary.items)),
        ("run", clean(summary.run)),
        ("queued", clean(", ".join(summary.queued))),
    ]
    for name, value in facts:
        if value:
            screen.line(screen.paint(pad(name, ROLE_WIDTH), "dim") + value)
    if history:
        screen.line()
        print_items(screen, history)
    return Exit.OK


async def _clear(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        conversation = await _found(client, arguments.session)
        if not arguments.yes:
            items = numbered(len(conversation.history), "item")
            await confirm(
                f"forget {items} of conversation {conversation.session}?",
                to_do="clear it",
                otherwise="nothing was cleared",
            )
        cleared = await client.bus.conversations.clear(arguments.session, by=decider(arguments.by))
    if arguments.json:
        put_json(_summary(cleared))
    say(f"{numbered(len(conversation.history), 'item')} forgotten")
    return Exit.OK


async def _found(client: Client, session: str) -> Conversation:
    conversation = await client.bus.conversations.read(session)
    if conversation.last_sequence == 0:
        hint = did_you_mean(session, await readable(client.bus.conversations.names()))
        raise CliError(
            Exit.NOT_FOUND,
            f"there is no conversation {session!r}; `sandstream conversations` lists all{hint}",
        )
    return conversation


def _summary(conversation: Conversation) -> ConversationSummary:
    history = conversation.history
    return ConversationSummary(
        session=conversation.session,
        items=len(history),
        run=conversation.holder.run if conversation.holder else "",
        queued=[it.run for it in conversation.waiting[1:]],
        last=msgspec.json.decode(history[-1]) if history else None,
    )
