"""``sandstream run``: an agent of a file, here and now, told live."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

from sandstream_bus.errors import BusError
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import RunDone, RunStarted
from sandstream_bus.subjects import RunId, run_id_of_key
from sandstream_bus.subscription import CoreMessage

from sandstream.agent import Agent
from sandstream.cli.apps import choose_agent, load_app, split_target
from sandstream.cli.command_output import heard
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.run_display import Display
from sandstream.cli.run_sandbox import with_sandbox
from sandstream.cli.session import read_input, run_async, say, show_logs
from sandstream.cli.submit import put_result
from sandstream.exceptions import AgentsException, UserError
from sandstream.process import Process
from sandstream.run_config import DEFAULT_MAX_TURNS, RunConfig
from sandstream.runner import Runner
from sandstream.summaries import summarize

_END_PATIENCE_S = 5.0


def main(arguments: argparse.Namespace) -> int:
    path, name = split_target(arguments.target)
    app = load_app(path, debug=arguments.debug)
    agent = choose_agent(app, name)
    text = read_input(arguments.input)
    if arguments.key == "":
        raise CliError(Exit.USAGE, "--key must not be empty")
    config = with_sandbox(arguments, agent, app.config or RunConfig())
    if arguments.key is not None:
        config = dataclasses.replace(config, run_key=arguments.key)
    return run_async(_run(arguments, config, agent, text), debug=arguments.debug)


async def _run(
    arguments: argparse.Namespace, config: RunConfig, agent: Agent[Any], text: str
) -> int:
    max_turns = arguments.max_turns or DEFAULT_MAX_TURNS
    process = await Process.of_this_loop()
    show_logs()
    # closed here and not with the loop: sandboxes have things to put away, which take a loop
    async with _closed_after(process), _own_runs(process) as started:
        if config.run_key is not None:
            started.set_result(run_id_of_key(config.run_key))
        running = asyncio.ensure_future(
            _with_stream(agent, text, max_turns, config)
            if arguments.stream
            else Runner.run(agent, text, max_turns=max_turns, run_config=config)
        )
        telling = asyncio.ensure_future(_tell(arguments, process, started))
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            await _give_up(running)
            if config.run_key is not None:
                say(f"interrupted; the same --key {config.run_key} continues the run")
            else:  # it was cancelled with its caller; let the end be written while we are here
                await asyncio.wait([telling], timeout=_END_PATIENCE_S)
            await _give_up(telling)
            raise
        return await _conclude(arguments, process, running, telling)


@contextlib.asynccontextmanager
async def _closed_after(process: Process) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await process.close()


async def _with_stream(agent: Agent[Any], text: str, max_turns: int, config: RunConfig) -> None:
    result = Runner.run_streamed(agent, text, max_turns=max_turns, run_config=config)
    async for _ in result.stream_events():
        pass  # told from the log, which also has what other processes did


async def _conclude(
    arguments: argparse.Namespace,
    process: Process,
    running: asyncio.Future[Any],
    telling: asyncio.Future[tuple[RunId, bool]],
) -> int:
    """The run is over, or could not begin: its end is in the log, and the log is what counts."""
    error = running.exception()
    began = error is None or not isinstance(error, UserError) or error.run_data is not None
    if isinstance(error, BusError) or not began:
        await _give_up(telling)
        assert error is not None
        raise error
    try:
        async with asyncio.timeout(_END_PATIENCE_S):
            run, was_shown = await telling
    except TimeoutError:
        await _give_up(telling)
        raise error or CliError(Exit.FAILED, "the run's end cannot be read") from None
    events = await process.bus.log.read(run)
    if not any(isinstance(event.event, RunDone) for event in events):
        raise error or AgentsException("the run has no end")
    summary = summarize(run, events)
    if was_shown and summary.status == "completed" and not arguments.json:
        return Exit.OK
    return put_result(summary, as_json=arguments.json)


async def _tell(
    arguments: argparse.Namespace, process: Process, started: asyncio.Future[RunId]
) -> tuple[RunId, bool]:
    """Show what happens; the run, and whether its output was just shown word by word."""
    run = await started
    display = Display(run, quiet=arguments.quiet, as_json=arguments.json and arguments.stream)
    bus = process.bus
    async with heard(bus, run, display.output):
        async for event in bus.follow.run(run, deltas=arguments.stream):
            if isinstance(event, LogEvent):
                display.event(event)
            else:
                display.delta(event)
    return run, display.end()


@contextlib.asynccontextmanager
async def _own_runs(process: Process) -> AsyncIterator[asyncio.Future[RunId]]:
    """The id of the first run that this process starts, as soon as it is in the log."""
    bus = process.bus
    started: asyncio.Future[RunId] = asyncio.get_running_loop().create_future()
    looking: set[asyncio.Future[None]] = set()

    async def look(message: CoreMessage) -> None:
        event = await bus.codec.run_event(message.data)
        if isinstance(event, RunStarted) and not started.done():
            hosts = {agent.host for agent in event.graph.agents.values()}
            if process.pool in hosts:
                started.set_result(bus.subjects.parse_run(message.subject).run)

    def on_message(message: CoreMessage) -> None:
        looking.add(asyncio.ensure_future(look(message)))

    subscription = await bus.connection.subscribe(bus.subjects.live("start.*"), on_message)
    await bus.connection.flush()
    try:
        yield started
    finally:
        await subscription.close()
        await _give_up(*looking)


async def _give_up(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
