"""``sandstream send``: more input for a run under way."""

from __future__ import annotations

import argparse
import shlex

import msgspec

from sandstream.cli.commands.approvals.decisions import decider
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import connected, events_of, put_json, read_input, run_async, say


class Sent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What ``--json`` prints."""

    run_id: str
    by: str = ""


def main(arguments: argparse.Namespace) -> int:
    text = read_input(arguments.input)
    return run_async(_send(arguments, text), debug=arguments.debug)


async def _send(arguments: argparse.Namespace, text: str) -> int:
    by = decider(arguments.by)
    async with connected() as client:
        await events_of(client, arguments.run)
        summary = await client.get(arguments.run)
        if summary.is_over:
            how = summary.status.replace("_", " ")
            text = f"run {summary.run_id} is over ({how})"
            if summary.session:
                session = _own_name(summary.session)
                names = shlex.join([summary.agent, "…", "--session", session])
                text += f"; continue its conversation: sandstream submit {names}"
            raise CliError(Exit.FAILED, text)
        await client.send_input(arguments.run, text, by=by)
        if client.asks is not None:
            by = client.asks.recorded_by(arguments.run, by)
    if arguments.json:
        put_json(Sent(run_id=arguments.run, by=by))
    else:
        waits = " (which waits for a person first)" if summary.status == "waiting" else ""
        say(f"sent; the next model call of run {arguments.run} sees it{waits}")
    return Exit.OK


def _own_name(session: str) -> str:
    """The owner's name of a conversation, without the prefix of the user."""
    return session.partition("/")[2] if session.startswith("@") else session
