"""``sandstream sandboxes rm``: a sandbox, removed for good."""

from __future__ import annotations

import argparse

from sandstream_bus.wire.sandboxes import Close

from sandstream.cli.commands.sandboxes.command import summary_of
from sandstream.cli.exits import Exit
from sandstream.cli.sandbox_choice import FoundSandbox, sandbox_named
from sandstream.cli.sandbox_link import reached
from sandstream.cli.session import connected, put_json, say
from sandstream.cli.terminal.confirmation import confirm
from sandstream.client import Client
from sandstream.sandbox.session.link import BusLink, Remote


async def remove(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        found = await sandbox_named(client, arguments.id)
        was_deleted = found.record.state == "deleted"
        if not was_deleted:
            if not arguments.yes:
                await _ask(found)
            await _remove(client, found)
            found = await sandbox_named(client, found.id)
    if arguments.json:
        put_json(summary_of(found))
    say(f"sandbox {found.id} was deleted before" if was_deleted else f"deleted {found.id}")
    return Exit.OK


async def _remove(client: Client, found: FoundSandbox) -> None:
    async with reached(client.bus, found.record) as node:
        remote = Remote(BusLink(client.bus, found.record.provider), found.id)
        remote.node = node
        await remote.ask(Close(checkpoint=False, delete=True))


async def _ask(found: FoundSandbox) -> None:
    record = found.record
    loses = "files that are not in a checkpoint are lost" if record.is_live else "for good"
    await confirm(
        f"remove sandbox {found.id} ({record.state})? {loses}",
        to_do="remove it",
        otherwise="nothing was removed",
    )
