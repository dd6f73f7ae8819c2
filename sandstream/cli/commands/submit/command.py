"""``sandstream submit``: publish a task for a served agent."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import msgspec
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import Budget, RunWaiting

from sandstream.cli.approval_texts import hint_texts, open_text
from sandstream.cli.event_texts import error_text, value_text
from sandstream.cli.exits import CliError, Exit, exit_of_status
from sandstream.cli.render import clean, out
from sandstream.cli.session import connected, put_json, read_input, run_async, say
from sandstream.client import Client
from sandstream.summaries import RunSummary


class Submitted(msgspec.Struct, kw_only=True):
    """What ``--json`` prints without ``--wait``."""

    run_id: str
    agent: str


def main(arguments: argparse.Namespace) -> int:
    if arguments.timeout is not None and not arguments.wait:
        raise CliError(Exit.USAGE, "--timeout needs --wait")
    if not arguments.agent:
        raise CliError(Exit.USAGE, "the agent's name is empty")
    if arguments.if_busy is not None and arguments.session is None:
        raise CliError(Exit.USAGE, "--if-busy needs --session")
    if arguments.session == "":
        raise CliError(Exit.USAGE, "--session must not be empty")
    context = _context(arguments.context)
    text = read_input(arguments.input)
    return run_async(_submit(arguments, text, context), debug=arguments.debug)


async def _submit(arguments: argparse.Namespace, text: str, context: dict[str, Any] | None) -> int:
    async with connected() as client:
        await _check_agent(client, arguments.agent)
        run = await client.submit(
            arguments.agent,
            text,
            key=arguments.key,
            context=context,
            max_turns=arguments.max_turns or msgspec.UNSET,
            session=arguments.session,
            session_busy=arguments.if_busy or "queue",
            budget=_budget(arguments),
            approval_expires_s=arguments.approval_expires,
        )
        if not arguments.wait:
            if arguments.json:
                put_json(Submitted(run_id=run, agent=arguments.agent))
            else:
                out().line(run)
            return Exit.OK
        say(f"run {run}")
        try:
            async with asyncio.timeout(arguments.timeout):
                await _wait(client, run)
        except TimeoutError:
            raise CliError(
                Exit.TIMEOUT,
                f"run {run} did not end within {arguments.timeout:g} s and goes on; "
                f"follow it: sandstream watch {run}",
            ) from None
        return put_result(await client.get(run), as_json=arguments.json)


async def _wait(client: Client, run: str) -> None:
    """Until the end; what only people can answer meanwhile is told."""
    hinted: set[tuple[str, str]] = set()
    async for event in client.follow(run):
        if not isinstance(event, LogEvent) or not isinstance(event.event, RunWaiting):
            continue
        new = [it for it in event.event.approvals if (it.run, it.call) not in hinted]
        hinted.update((it.run, it.call) for it in new)
        if new:
            say(f"it waits {open_text(new)}")
            for hint in hint_texts(new, run):
                say(f"  {hint}")


def _budget(arguments: argparse.Namespace) -> Budget | None:
    limits = {
        "tokens": arguments.max_tokens,
        "seconds": arguments.max_seconds,
        "tool_calls": arguments.max_tool_calls,
    }
    if all(limit is None for limit in limits.values()):
        return None
    return Budget(**limits)


def put_result(summary: RunSummary, *, as_json: bool) -> int:
    """A finished run's output on stdout, or why there is none; the exit code."""
    if as_json:
        put_json(summary)
    elif summary.status == "completed":
        text = value_text(summary.output) if summary.output is not None else ""
        screen = out()
        screen.line(clean(text) if screen.is_terminal else text)
    else:
        why = error_text(summary.error) if summary.error else "no reason was given"
        say(f"sandstream: run {summary.run_id} {summary.status.replace('_', ' ')}: {why}")
    return exit_of_status(summary.status)


async def _check_agent(client: Client, agent: str) -> None:
    """A task for an unknown agent would only fail; one without a harness waits."""
    registered = await client.bus.agents.find(agent)
    if registered is None:
        known = ", ".join(await client.agents())
        hint = f"known: {known}" if known else "none is: start a worker, `sandstream worker app.py`"
        raise CliError(Exit.NOT_FOUND, f"no agent {agent!r} is registered ({hint})")
    topology, connection = client.bus.topology, client.bus.connection
    info = await topology.consumer_info(connection, f"harness-{registered.pool}")
    if info is None or not info.get("num_waiting"):
        say(f"no harness of pool {registered.pool} is running: the task waits for `sandstream up`")
    uses = [one.sandbox for one in registered.graph.agents.values() if one.sandbox is not None]
    for provider in sorted({use.spec.provider for use in uses}):
        if not await client.bus.presence.is_served(f"sandbox-{provider}"):
            say(f"no actor for {provider} sandboxes is running: start `sandstream actor sandbox`")


def _context(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise CliError(Exit.USAGE, f"--context is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CliError(Exit.USAGE, f"--context must be a JSON object, not {text}")
    return value
