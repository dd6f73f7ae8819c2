"""``sandstream submit``: publish a task for a served agent."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from typing import Any

import msgspec
from sandstream_bus.errors import PermissionDenied
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import Budget, RunWaiting
from sandstream_bus.wire.subjects import run_id_of_key, run_of_user

from sandstream._inspect.summaries import RunSummary
from sandstream._inspect.texts import error_text, value_text
from sandstream.cli.commands.approvals.texts import hint_texts, open_text
from sandstream.cli.exits import CliError, Exit, exit_of_status
from sandstream.cli.session import connected, put_json, read_input, run_async, say
from sandstream.cli.suggestions import did_you_mean
from sandstream.cli.terminal.render import age, clean, out
from sandstream.client import Client, RunNotFound

_NO_AGENT = "none is: start a worker, `sandstream worker app.py`"


_ENDED = {
    "failed": "failed",
    "cancelled": "was cancelled",
    "max_turns": "did not complete",
    "budget": "did not complete",
    "guardrail": "was stopped",
}
"""How a run that did not complete ended; the error's code has the details."""


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
        stored = await _stored_end(client, arguments.key) if arguments.key else ""
        if not stored:  # a task that has its outcome needs no agent
            await _check_agent(client, arguments.agent)
        run = await client.submit(
            arguments.agent,
            text,
            key=arguments.key,
            context=context,
            max_turns=arguments.max_turns or msgspec.UNSET,
            session=arguments.session,
            session_busy=arguments.if_busy or "queue",
            budget=budget_of(arguments),
            approval_expires_s=arguments.approval_expires,
        )
        if not arguments.wait:
            if arguments.json:
                put_json(Submitted(run_id=run, agent=arguments.agent))
            else:
                out().line(run)
            if stored:
                say(stored)
            return Exit.OK
        code = await wait_for_result(client, run, arguments)
        if stored:
            say(stored)
        return code


async def wait_for_result(client: Client, run: str, arguments: argparse.Namespace) -> int:
    """Wait for the end as ``--timeout`` allows, and print the output; the exit code."""
    say(f"run {run}")
    try:
        async with asyncio.timeout(arguments.timeout):
            await _wait(client, run)
    except TimeoutError:
        raise CliError(
            Exit.TIMEOUT,
            f"run {run} did not end within {arguments.timeout:g} s and continues; "
            f"follow it: sandstream watch {run}",
        ) from None
    return put_result(await client.get(run), as_json=arguments.json)


async def _stored_end(client: Client, key: str) -> str:
    """The hint if the run of a key has ended: submitting it again has no effect."""
    run = run_of_user(client.asks.user, key) if client.asks else run_id_of_key(key)
    try:
        summary = await client.get(run)
    except (RunNotFound, PermissionDenied):
        return ""
    return stored_hint(summary) if summary.is_over else ""


def stored_hint(summary: RunSummary) -> str:
    """The hint for a key whose run has already ended."""
    when = f"{age(summary.ended_at)} ago" if summary.ended_at else "before"
    text = f"this is the stored outcome of run {summary.run_id}, which ended {when}"
    if summary.status in ("completed", "cancelled"):
        return f"{text}; another --key is another run"
    return f"{text}; to repeat its failed step: sandstream retry {summary.run_id}"


async def _wait(client: Client, run: str) -> None:
    """Wait for the end; print the questions that wait for people meanwhile."""
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


def budget_of(arguments: argparse.Namespace) -> Budget | None:
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
        if screen.is_terminal:
            screen.line(clean(text))
        else:
            screen.put(text)
    else:
        why = error_text(summary.error) if summary.error else "no reason was given"
        say(f"sandstream: run {summary.run_id} {_ENDED.get(summary.status, 'ended')}: {why}")
    return exit_of_status(summary.status)


async def _check_agent(client: Client, agent: str) -> None:
    """A task for an unknown agent would only fail; one without a harness waits."""
    with contextlib.suppress(PermissionDenied):  # of a user who only submits: the run will say it
        await _look_for(client, agent)


async def _look_for(client: Client, agent: str) -> None:
    registered = await client.bus.agents.find(agent)
    if registered is None:
        known = await client.agents()
        hint = f"known: {', '.join(known)}" if known else _NO_AGENT
        raise CliError(
            Exit.NOT_FOUND,
            f"no agent {agent!r} is registered ({hint}){did_you_mean(agent, known)}",
        )
    if not await client.bus.presence.is_served(f"harness-{registered.pool}"):
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
