"""``sandstream approve`` and ``reject``: a person's answer to a call that waits for one."""

from __future__ import annotations

import argparse
import contextlib

import msgspec
from sandstream_bus.errors import PermissionDenied

from sandstream._inspect.trees import address_of
from sandstream._wire.ids import PRIVATE_POOL
from sandstream.cli.commands.approvals.decisions import decider, open_call
from sandstream.cli.commands.approvals.texts import wanted_text
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import connected, put_json, run_async, say
from sandstream.cli.terminal.render import one_line, out, shorten
from sandstream.client import Client


class Decision(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What ``--json`` prints."""

    run_id: str
    call: str
    call_id: str
    tool: str
    arguments: str
    approve: bool
    by: str = ""
    always: bool = False
    message: str | None = None


def main(arguments: argparse.Namespace) -> int:
    if arguments.message is not None and not arguments.message.strip():
        raise CliError(Exit.USAGE, "--message is empty; omit it to send the model a default text")
    return run_async(_decide(arguments), debug=arguments.debug)


async def _decide(arguments: argparse.Namespace) -> int:
    by = decider(arguments.by)
    always: bool = arguments.always
    async with connected() as client:
        waiting = await open_call(client, arguments.command, arguments.run, arguments.call)
        run, asked = waiting
        root = (await client.get(run)).root
        to, call = await address_of(client.bus, root, run, asked)
        if arguments.approve:
            await client.approve(to, call, always=always, by=by)
        else:
            await client.reject(to, call, message=arguments.message, always=always, by=by)
        if client.asks is not None:
            by = client.asks.recorded_by(to, by)
        with contextlib.suppress(PermissionDenied):  # of a user who may not ask who is there
            await _warn(client, run)
    if arguments.json:
        put_json(
            Decision(
                run_id=run,
                call=asked.call,
                call_id=asked.call_id,
                tool=asked.name,
                arguments=asked.arguments,
                approve=arguments.approve,
                by=by,
                always=always,
                message=arguments.message,
            )
        )
        return Exit.OK
    screen = out()
    done = "approved" if arguments.approve else "rejected"
    later = ", and later calls of it" if always else ""
    wanted = shorten(one_line(wanted_text(asked)), 60)
    screen.line(f"{done} {wanted} of run {run}{later}")
    return Exit.OK


async def _warn(client: Client, run: str) -> None:
    """Warn if no harness serves the run: the answer is stored, but has no effect yet."""
    pool = (await client.get(run)).pool
    if await client.bus.presence.is_served(f"harness-{pool}"):
        return
    if pool.startswith(PRIVATE_POOL):
        say(f"its process has ended: call it again, `sandstream run app.py … --key {run}`")
    else:
        say(f"no harness of pool {pool} is running: the run continues when one starts")
