"""``sandstream session new`` and ``send``: messages to a session, and the answers."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec

from sandstream._inspect.texts import call_text
from sandstream.cli.commands.session.attach import attach
from sandstream.cli.commands.session.options import options_of
from sandstream.cli.commands.session.texts import put_said
from sandstream.cli.exits import CliError, Exit, exit_of_status
from sandstream.cli.session import put_json, read_input, readable, say
from sandstream.cli.suggestions import did_you_mean
from sandstream.cli.terminal.render import out
from sandstream.client import Client
from sandstream.sessions.durable_session import DurableSession
from sandstream.sessions.errors import TurnFailed
from sandstream.sessions.events import SessionChanged


class Sent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What ``send --json`` prints."""

    session: str
    message: str
    turn: int = 0
    status: str = ""
    answer: str = ""


async def begin(client: Client, arguments: argparse.Namespace) -> int:
    """Create a session; then follow it, if that was asked for."""
    text = read_input(arguments.text) if arguments.text is not None else ""
    await _check_agent(client, arguments.agent)
    session = await client.sessions.create(
        arguments.agent,
        id=arguments.id,
        title=arguments.title or "",
        input=text,
        provider=arguments.provider,
        options=options_of(arguments),
        idle_s=arguments.idle,
        take=arguments.take,
    )
    as_json: bool = arguments.json
    if arguments.attach:
        say(f"session {session.id}")
        return await attach(session, arguments)
    if as_json:
        put_json(await session.info())
    else:
        out().line(session.id)
        say(f"follow it: sandstream session attach {session.id}")
    return Exit.OK


async def _check_agent(client: Client, agent: str) -> None:
    """Say which agents there are, if this one is unknown."""
    known = await readable(client.agents())
    if known and agent not in known:
        raise CliError(
            Exit.NOT_FOUND,
            f"no agent {agent!r} is registered (known: {', '.join(known)})"
            f"{did_you_mean(agent, known)}",
        )


@contextlib.asynccontextmanager
async def _hinted(session: DurableSession) -> AsyncIterator[None]:
    """Say which calls wait for a person, as long as the answer is waited for."""

    async def hint() -> None:
        told: set[tuple[str, str]] = set()
        async with contextlib.aclosing(session.follow(deltas=False)) as events:
            async for event in events:
                if not isinstance(event, SessionChanged) or event.info.activity != "needs you":
                    continue
                for it in await session.approvals():
                    if (it.run_id, it.call) not in told:
                        told.add((it.run_id, it.call))
                        say(f"it waits for approval of {call_text(it.tool, it.arguments)}")
                        say(f"  sandstream session approve {session.id} {it.call}   (or reject)")

    hinting = asyncio.ensure_future(hint())
    try:
        yield
    finally:
        hinting.cancel()
        await asyncio.gather(hinting, return_exceptions=True)


async def send(session: DurableSession, arguments: argparse.Namespace) -> int:
    """Send a message; with ``--wait`` print the answer."""
    sent = await session.send(read_input(arguments.text), id=arguments.message_id)
    if not arguments.wait:
        if arguments.json:
            put_json(Sent(session=session.id, message=sent.id))
        else:
            out().line(sent.id)
        return Exit.OK
    try:
        async with _hinted(session):
            answer = await sent.answer()
    except TurnFailed as error:
        if arguments.json:
            put_json(
                Sent(session=session.id, message=sent.id, turn=error.turn, status=error.status)
            )
        say(f"sandstream: {error}")
        return exit_of_status(error.status)
    if arguments.json:
        turn = await sent.turn()
        put_json(
            Sent(
                session=session.id,
                message=sent.id,
                turn=turn.number,
                status=turn.status,
                answer=answer,
            )
        )
    else:
        put_said(answer)
    return Exit.OK
