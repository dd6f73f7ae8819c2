"""``sandstream cancel``: stop a run, and end the boxes that it has on this machine."""

from __future__ import annotations

import argparse

from sandstream.cli.exits import Exit
from sandstream.cli.session import connected, events_of, put_json, run_async, say
from sandstream.cli.terminal.render import out


def main(arguments: argparse.Namespace) -> int:
    return run_async(_cancel(arguments), debug=arguments.debug)


async def _cancel(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        await events_of(client, arguments.run)
        before = await client.get(arguments.run)
        after = await client.cancel(
            arguments.run,
            mode="after_turn" if arguments.after_turn else "immediate",
            reason=arguments.reason,
        )
        if after.is_over and client.asks is None:
            from sandstream.cli.commands.sandboxes.reap import close_left_by

            await close_left_by(client.bus, after.run_id)
    if arguments.json:
        put_json(after)
    else:
        out().line(after.status)
    if before.is_over:
        say(f"run {after.run_id} had ended before: {after.status.replace('_', ' ')}")
    elif not after.is_over and arguments.after_turn:
        say("it stops when its current turn is over")
    elif not after.is_over:
        say("the request is stored, but the run has not stopped yet; see `sandstream doctor`")
        return Exit.TIMEOUT
    return Exit.OK
