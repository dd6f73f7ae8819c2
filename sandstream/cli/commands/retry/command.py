"""``sandstream retry``: continue a failed run from the step that failed."""

from __future__ import annotations

import argparse

import msgspec

from sandstream.cli.commands.submit.command import budget_of, wait_for_result
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import connected, events_of, put_json, run_async, say
from sandstream.cli.terminal.render import out


def main(arguments: argparse.Namespace) -> int:
    if arguments.timeout is not None and not arguments.wait:
        raise CliError(Exit.USAGE, "--timeout needs --wait")
    return run_async(_retry(arguments), debug=arguments.debug)


async def _retry(arguments: argparse.Namespace) -> int:
    async with connected() as client:
        await events_of(client, arguments.run)
        summary = await client.retry(
            arguments.run,
            max_turns=arguments.max_turns or msgspec.UNSET,
            budget=budget_of(arguments),
            reason=arguments.reason,
        )
        if summary.pool and not await client.bus.presence.is_served(f"harness-{summary.pool}"):
            say(f"no harness of pool {summary.pool} is running: it waits for `sandstream up`")
        if arguments.wait:
            return await wait_for_result(client, arguments.run, arguments)
    if arguments.json:
        put_json(summary)
    else:
        out().line(summary.status)
    return Exit.OK
