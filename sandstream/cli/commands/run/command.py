"""``sandstream run``: an agent of a file, here and now, told live."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import shlex
from collections.abc import AsyncIterator
from typing import Any

from sandstream_bus.errors import BusError
from sandstream_bus.log import LogEvent
from sandstream_bus.messages import RunDone, RunStarted
from sandstream_bus.subjects import RunId, run_id_of_key
from sandstream_bus.subscription import CoreMessage

from sandstream.agent import Agent
from sandstream.cli.approval_texts import hint_texts, open_text
from sandstream.cli.apps import choose_agent, load_app, split_target
from sandstream.cli.command_output import heard
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.run_asking import Asker, NobodyToAsk, with_questions
from sandstream.cli.run_display import Display
from sandstream.cli.run_sandbox import with_sandbox
from sandstream.cli.session import put_json, read_input, run_async, say, show_logs
from sandstream.cli.submit import put_result
from sandstream.cli.tree_follow import TreeFollower
from sandstream.exceptions import AgentsException, UserError
from sandstream.process import Process
from sandstream.result import RunResultBase
from sandstream.run_config import DEFAULT_MAX_TURNS, RunConfig
from sandstream.runner import Runner
from sandstream.summaries import summarize

_END_PATIENCE_S = 5.0
_SHORT_INPUT = 60


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
        asker = Asker(process.bus)

        async def call(input: Any) -> RunResultBase:
            if arguments.stream:
                return await _with_stream(agent, input, max_turns, config)
            return await Runner.run(agent, input, max_turns=max_turns, run_config=config)

        running = asyncio.ensure_future(with_questions(process, asker, call, text))
        telling = asyncio.ensure_future(_tell(arguments, process, started, asker))
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            await _give_up(running)
            if asker.waiting is not None:
                say(f"interrupted; {_how_to_go_on(arguments, asker.waiting)}")
            elif config.run_key is not None:
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


async def _with_stream(
    agent: Agent[Any], input: Any, max_turns: int, config: RunConfig
) -> RunResultBase:
    result = Runner.run_streamed(agent, input, max_turns=max_turns, run_config=config)
    async for _ in result.stream_events():
        pass  # told from the log, which also has what other processes did
    return result


async def _conclude(
    arguments: argparse.Namespace,
    process: Process,
    running: asyncio.Future[Any],
    telling: asyncio.Future[tuple[RunId, bool]],
) -> int:
    """The run is over, or could not begin: its end is in the log, and the log is what counts."""
    error = running.exception()
    if isinstance(error, NobodyToAsk):
        await _give_up(telling)
        if arguments.json:
            put_json(summarize(error.run, await process.bus.log.read(error.run)))
        text = f"run {error.run} waits {open_text(error.approvals)}, and nobody is here to ask"
        raise CliError(Exit.WAITING, f"{text}; {_how_to_go_on(arguments, error)}")
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


def _how_to_go_on(arguments: argparse.Namespace, waiting: NobodyToAsk) -> str:
    """The commands for a run that waits and that nobody serves now."""
    answer = hint_texts(waiting.approvals, waiting.run)
    input = arguments.input if len(arguments.input) <= _SHORT_INPUT else "…"
    again = shlex.join(["sandstream", "run", arguments.target, input, "--key", waiting.run])
    return "\n  ".join(["answer, then go on:", *answer, again])


async def _tell(
    arguments: argparse.Namespace,
    process: Process,
    started: asyncio.Future[RunId],
    asker: Asker,
) -> tuple[RunId, bool]:
    """Show what happens; the run, and whether its output was just shown word by word."""
    run = await started
    bus = process.bus
    async with contextlib.AsyncExitStack() as stack:
        display = Display(
            bus,
            run,
            stack,
            quiet=arguments.quiet,
            as_json=arguments.json and arguments.stream,
            hints=not asker.can_ask,
        )
        await stack.enter_async_context(heard(bus, run, display.output))
        following = TreeFollower(bus, run, deltas=True).events()
        async for told in await stack.enter_async_context(contextlib.aclosing(following)):
            if not isinstance(told.event, LogEvent):
                if arguments.stream:
                    display.delta(told.event)
            elif told.member.depth:
                await display.below(told, told.event)
            else:
                display.event(told.event)
                asker.told(told.event)
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
