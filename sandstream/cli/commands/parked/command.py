"""``sandstream parked``: messages that no actor could handle."""

from __future__ import annotations

import argparse

import msgspec
from sandstream_actors.tracing.environment_values import text_without_values
from sandstream_bus.counts import numbered
from sandstream_bus.logs.parked import ParkedEntry
from sandstream_bus.wire.messages import Parked

from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import connected, near_ids, put_json, run_async, say
from sandstream.cli.terminal.render import Cell, Column, age, clean, one_line, out, pad, table
from sandstream.client import Client

_COLUMNS = [
    Column("ID"),
    Column("AGE", ">"),
    Column("TRIES", ">"),
    Column("SUBJECT", shrinks=16),
    Column("REASON", shrinks=16),
]
_LOOKED_AT = 1000
"""The newest messages, among which a mistyped id is looked for."""


class ParkedRecord(msgspec.Struct, kw_only=True):
    """One parked message as ``--json`` prints it."""

    id: str
    time: str
    parked: Parked


class Redriven(msgspec.Struct, kw_only=True):
    """What came of ``redrive`` or ``drop``."""

    id: str
    action: str
    sequence: int | None = None


def main(arguments: argparse.Namespace) -> int:
    if arguments.action == "ls" and arguments.id is not None:
        raise CliError(Exit.USAGE, "`parked ls` takes no id; did you mean `parked show`?")
    if arguments.action != "ls" and arguments.id is None:
        raise CliError(Exit.USAGE, f"`parked {arguments.action}` needs an id; see `parked ls`")
    return run_async(_parked(arguments), debug=arguments.debug)


async def _parked(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        if arguments.action == "ls":
            found = await client.parked(limit=arguments.limit)
            more = await client.bus.parking.count() - len(found)
            return _list(found, more, as_json=arguments.json)
        entry = await _find(client, arguments.id)
        if arguments.action == "show":
            return _show(entry, as_json=arguments.json)
        sequence: int | None = None
        if arguments.action == "redrive":
            sequence = await client.redrive(entry.id)
            say(f"taken again: {entry.parked.subject}; its result is at sequence {sequence}")
        else:
            await client.drop_parked(entry.id)
            say(f"dropped {entry.id}")
    if arguments.json:
        put_json(Redriven(id=entry.id, action=arguments.action, sequence=sequence))
    return Exit.OK


def _list(entries: list[ParkedEntry], more: int, *, as_json: bool) -> int:
    if as_json:
        for entry in entries:
            put_json(_record(entry))
        if more > 0:
            say(f"{numbered(more, 'older one is', 'older ones are')} not shown: --limit")
        return Exit.OK
    if not entries:
        say("nothing is parked")
        return Exit.OK
    screen = out()
    rows = [
        [
            Cell(entry.id, "bold"),
            Cell(age(entry.time), "dim"),
            Cell(str(entry.parked.deliveries)),
            Cell(entry.parked.subject),
            Cell(entry.parked.reason, "red"),
        ]
        for entry in entries
    ]
    for line in table(screen, _COLUMNS, rows):
        screen.line(line)
    if more > 0:
        say(f"{numbered(more, 'older one is', 'older ones are')} not shown: --limit")
    say("`sandstream parked show ID` tells more; `redrive ID` tries again; `drop ID` forgets")
    return Exit.OK


def _show(entry: ParkedEntry, *, as_json: bool) -> int:
    if as_json:
        put_json(_record(entry))
        return Exit.OK
    screen = out()
    parked = entry.parked
    facts = [
        ("id", screen.paint(entry.id, "bold")),
        ("subject", clean(parked.subject)),
        ("sequence", str(parked.sequence)),
        (
            "parked",
            f"{age(entry.time)} ago by {clean(parked.consumer)}, delivery {parked.deliveries}",
        ),
        ("reason", screen.paint(clean(parked.reason), "red")),
        *(
            (f"header {one_line(key)}", one_line(value))
            for key, value in sorted(parked.headers.items())
        ),
    ]
    width = max(len(name) for name, _ in facts) + 2
    for name, value in facts:
        screen.line(screen.paint(pad(name, width), "dim") + value)
    screen.line()
    screen.line(clean(text_without_values(parked.body)))
    return Exit.OK


async def _find(client: Client, entry_id: str) -> ParkedEntry:
    entry = await client.bus.parking.get(entry_id)
    if entry is None:
        known = [it.id for it in await client.parked(limit=_LOOKED_AT)]
        raise CliError(
            Exit.NOT_FOUND,
            f"nothing is parked under {entry_id!r}{near_ids(entry_id, known)}; "
            "`sandstream parked` lists all",
        )
    return entry


def _record(entry: ParkedEntry) -> ParkedRecord:
    body = text_without_values(entry.parked.body)
    parked = msgspec.structs.replace(entry.parked, body=body)
    return ParkedRecord(id=entry.id, time=entry.time, parked=parked)
