"""``sandstream run``: run an agent of a file in this process and show it live."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import shlex
from collections.abc import AsyncIterator
from typing import Any

from sandstream_bus.errors import BusError
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import RunDone
from sandstream_bus.wire.subjects import RunId

from sandstream._inspect.live_output import heard
from sandstream._inspect.summaries import RunSummary, summarize
from sandstream._inspect.tree_follower import TreeFollower
from sandstream._run.process import Process
from sandstream.agent import Agent
from sandstream.cli.commands.approvals.texts import hint_texts, open_text
from sandstream.cli.commands.run.display import Display
from sandstream.cli.commands.run.questions import Asker, NobodyToAsk, with_questions
from sandstream.cli.commands.run.sandbox import with_sandbox
from sandstream.cli.commands.submit.command import put_result, stored_hint
from sandstream.cli.commands.worker.apps import choose_agent, load_app, split_target
from sandstream.cli.exits import CliError, Exit
from sandstream.cli.session import put_json, read_input, run_async, say, show_logs
from sandstream.exceptions import AgentsException, UserError
from sandstream.result import RunResultBase
from sandstream.run_config import DEFAULT_MAX_TURNS, RunConfig
from sandstream.runner import Runner

_END_PATIENCE_S = 5.0
_SHORT_INPUT = 60


def main(arguments: argparse.Namespace) -> int:
    path, name = split_target(arguments.target)
    app = load_app(path, debug=arguments.debug)
    agent = choose_agent(app, name)
    text = read_input(arguments.input)
    if arguments.key == "":
        raise CliError(Exit.USAGE, "--key must not be empty")
    if arguments.retry and arguments.key is None:
        raise CliError(Exit.USAGE, "--retry needs the --key of the run that failed")
    config = with_sandbox(arguments, agent, app.config or RunConfig())
    if arguments.key is not None:
        config = dataclasses.replace(config, run_key=arguments.key, retry_failed=arguments.retry)
    return run_async(_run(arguments, config, agent, text), debug=arguments.debug)


async def _run(
    arguments: argparse.Namespace, config: RunConfig, agent: Agent[Any], text: str
) -> int:
    max_turns = arguments.max_turns or DEFAULT_MAX_TURNS
    process = await Process.of_this_loop()
    show_logs()
    # closed here and not with the loop: sandboxes have things to put away, which take a loop
    async with _closed_after(process):
        start = _Start(process, retry=arguments.retry)
        asker = Asker(process.bus)

        async def call(input: Any) -> RunResultBase:
            if arguments.stream:
                return await _with_stream(agent, input, max_turns, config)
            return await Runner.run(agent, input, max_turns=max_turns, run_config=config)

        running = asyncio.ensure_future(with_questions(process, asker, call, text))
        telling = asyncio.ensure_future(_tell(arguments, process, start, asker))
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
        return await _conclude(arguments, process, start, running, telling)


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
    start: _Start,
    running: asyncio.Future[Any],
    telling: asyncio.Future[tuple[RunId, bool]],
) -> int:
    """The run is over, or could not begin: its end is in the log, and the log is what counts."""
    error = running.exception()
    if isinstance(error, NobodyToAsk):
        await _give_up(telling)
        if arguments.json:
            put_json(summarize(error.run, await process.bus.log.read(error.run)))
        text = f"run {error.run} waits {open_text(error.approvals)}"
        text += ", and no terminal is available to ask"
        raise CliError(Exit.WAITING, f"{text}; {_how_to_go_on(arguments, error)}")
    refused = isinstance(error, UserError) and error.run_data is None
    # a run that never began, say for want of a sandbox, has no end to wait for
    if error is not None and (
        isinstance(error, BusError) or refused or not await start.has_begun()
    ):
        await _give_up(telling)
        raise error
    if error is not None and await start.is_left_as_it_was():
        await _give_up(telling)
        run, was_shown = start.run.result(), False
    else:
        try:
            async with asyncio.timeout(_END_PATIENCE_S):
                run, was_shown = await telling
        except TimeoutError:
            await _give_up(telling)
            raise error or CliError(Exit.FAILED, "the run's end cannot be read") from None
    events = await process.bus.log.read(run)
    if not any(isinstance(event.event, RunDone) for event in events):
        raise error or AgentsException("the run has not ended")
    summary = summarize(run, events)
    code = _put_end(arguments, summary, was_shown)
    for note in getattr(error, "__notes__", ()):
        say(f"sandstream: {note}")
    if error is None and start.had_ended and not arguments.quiet:
        say(stored_hint(summary))
    return code


def _put_end(arguments: argparse.Namespace, summary: RunSummary, was_shown: bool) -> int:
    if was_shown and summary.status == "completed" and not arguments.json:
        return Exit.OK
    return put_result(summary, as_json=arguments.json)


def _how_to_go_on(arguments: argparse.Namespace, waiting: NobodyToAsk) -> str:
    """The commands that continue a waiting run after this process has ended."""
    answer = hint_texts(waiting.approvals, waiting.run)
    input = arguments.input if len(arguments.input) <= _SHORT_INPUT else "…"
    again = shlex.join(["sandstream", "run", arguments.target, input, "--key", waiting.run])
    return "\n  ".join(["answer, then continue:", *answer, again])


async def _tell(
    arguments: argparse.Namespace,
    process: Process,
    start: _Start,
    asker: Asker,
) -> tuple[RunId, bool]:
    """Show what happens; the run, and whether its output was just shown word by word."""
    run = await start.run
    bus = process.bus
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(start.let_go)
        display = Display(
            bus,
            run,
            stack,
            quiet=arguments.quiet,
            as_json=arguments.json and arguments.stream,
            hints=not asker.can_ask,
        )
        await stack.enter_async_context(heard(bus, run, display.output))
        following = TreeFollower(
            bus, run, deltas=True, on_listening=start.let_go, goes_on=start.is_retry
        ).events()
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


class _Start:
    """The first run that this process starts. It waits until the display listens, so that no
    streamed output is missed.
    """

    def __init__(self, process: Process, *, retry: bool) -> None:
        self.run: asyncio.Future[RunId] = asyncio.get_running_loop().create_future()
        self.had_ended = False
        """The run of the key had completed before."""
        self.is_retry = False
        """The run of the key had failed before, and is to be tried again."""
        self._may_retry = retry
        self._ended_at = 0
        self._is_heard = asyncio.Event()
        self._process = process
        process.before_start = self._before

    async def has_begun(self) -> bool:
        """Is there a run, and anything of it in the log?"""
        return self.run.done() and await self._process.bus.log.has_begun(self.run.result())

    async def is_left_as_it_was(self) -> bool:
        """Was it to be tried again, and was refused?"""
        if not self.is_retry:
            return False
        ended = await self._last_end(self.run.result())
        return ended is not None and ended.sequence == self._ended_at

    async def _last_end(self, run: RunId) -> LogEvent | None:
        return await self._process.bus.log.last(self._process.bus.subjects.done(run))

    async def _before(self, run: RunId) -> None:
        if not self.run.done():
            ended = await self._last_end(run)
            if ended is not None and isinstance(ended.event, RunDone):
                self.had_ended = ended.event.status == "completed"
                self.is_retry = self._may_retry and not self.had_ended
                self._ended_at = ended.sequence
            self.run.set_result(run)
        await self._is_heard.wait()

    async def let_go(self) -> None:
        """Let the run start: the display listens or has failed."""
        self._is_heard.set()


async def _give_up(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
