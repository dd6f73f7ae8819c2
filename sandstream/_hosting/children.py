"""Agents as tools: the input, the output and the events of a child run.

The harness starts the child run and processes its end. This module does the parts that need the
user's code. An exception of that code is the tool's failure; the tool's own handler turns it into
a text.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

from sandstream_actors.run.call_results import listening_to
from sandstream_actors.run.state import RunState
from sandstream_actors.run.state_cache import States
from sandstream_actors.tool_host.actor import TakenCall
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.error_text import error_text
from sandstream_bus.wire.messages import (
    CallRequested,
    CancelRequested,
    ChildInput,
    ErrorInfo,
    LiveEvent,
    RunDone,
)
from sandstream_bus.wire.specs import NO_JSON
from sandstream_bus.wire.subjects import RunId

from sandstream._hosting.early_results import say_early
from sandstream._hosting.final_output import final_output
from sandstream._hosting.hosted_run import Host, HostedRun
from sandstream._hosting.outcomes import Outcome, kept, original
from sandstream._hosting.tools.context import tool_context
from sandstream._hosting.values import as_json, final_value, resolved
from sandstream._surface.agent_tool_stream import StreamOverflow, feed
from sandstream._surface.outcomes import error_info, exception_of_error
from sandstream._surface.task_ends import stop
from sandstream._wire.options import compile_input
from sandstream.agent_tool import AgentTool
from sandstream.exceptions import AgentsException, UserError
from sandstream.result import RunResult
from sandstream.stream_events import RawResponsesStreamEvent, StreamEvent
from sandstream.tool import FunctionToolCustomDataContext, tool_output_to_wire
from sandstream.usage import usage_of


async def child_input(
    hosted: HostedRun, state: RunState, call: CallRequested, states: States
) -> Outcome:
    """Make the input of a child run from structured arguments. If that fails, the error becomes the
    tool's outcome, as if the run had failed.
    """
    tool = _tool(hosted, call)
    try:
        made = await tool.input_of(tool.parsed(call.arguments))
        items = compile_input(made)
    except Exception as error:  # noqa: BLE001  what user code raises is the tool's failure
        return Outcome(ChildInput(input=[]), {"error": kept(hosted, state.run, call, error)})
    return Outcome(ChildInput(input=items, is_text=isinstance(made, str)))


async def child_output(
    hosted: HostedRun, state: RunState, call: CallRequested, states: States
) -> Outcome:
    """Make the tool's output from the end of its run."""
    tool = _tool(hosted, call)
    context = tool_context(hosted, call)
    tool_call = call.call.removesuffix("-output")
    watched = state.results.get(f"{tool_call}-watch")
    ended = watched if watched is not None and watched.error else state.results[tool_call]
    failed: ErrorInfo | None = None
    try:
        if ended.error is not None:
            raise original(hosted, ended.error) or exception_of_error(ended.error, call.child)
        value = await tool.output_of(await _result(hosted, call, states))
    except Exception as error:
        if tool.on_failure is None:
            raise _raised(tool, error) from error
        failed = error_info(error)
        value = await resolved(tool.on_failure(context, error))
    agent = hosted.agent(call.agent)
    may_end = agent.tool_use_behavior != "run_llm_again"
    wire = tool_output_to_wire(value)
    hosted.values[tool_call] = value
    custom_data = NO_JSON
    if tool.custom_data_extractor is not None:
        raw = {"call_id": call.call_id, "output": wire, "type": "function_call_output"}
        data = FunctionToolCustomDataContext(context, tool, value, raw)
        custom_data = as_json(await resolved(tool.custom_data_extractor(data)))
    more = {
        "value": as_json(final_value(agent, value)) if may_end else NO_JSON,
        "custom_data": custom_data,
        "error": failed,
    }
    return Outcome(wire, more)


async def watch(hosted: HostedRun, state: RunState, call: TakenCall, states: States) -> None:
    """Show the run's events to ``on_stream`` while it runs; too many of them end it."""
    tool = _tool(hosted, call)
    assert tool.on_stream is not None
    made = state.results.get(call.call.removesuffix("-watch") + "-input")
    if made is not None and made.error is not None:
        return  # there is no run
    host = _host(hosted)
    run = RunId(call.child)

    async def announce() -> None:
        await say_early(host, state, call, listening_to(call.call))

    events = _events(host, run, states, announce)
    item = tool_context(hosted, call).tool_call
    limit = tool.on_stream_max_pending_events
    feeding = asyncio.ensure_future(feed(tool.on_stream, limit, events, tool.agent, item))
    try:
        await _until_over(host, state.run, run, feeding)
    except StreamOverflow as error:
        await host.bus.work_log.send(
            host.bus.subjects.cancel(run),
            CancelRequested(reason=str(error)),
            msg_id=f"{run}:cancel:overflow",
        )
        raise


async def _until_over(host: Host, parent: RunId, run: RunId, feeding: asyncio.Task[None]) -> None:
    """Wait for the end of the child run, or of its parent if the child never started."""
    ended = asyncio.ensure_future(host.bus.follow.done(parent))
    try:
        await asyncio.wait({feeding, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not feeding.done():
            ended.result()
            if await host.bus.log.last_sequence(run) == 0:
                return
            # a child that has started is cancelled and publishes its end
        await feeding
    finally:
        await stop([feeding, ended])


async def _events(
    host: Host, run: RunId, states: States, announce: Callable[[], Awaitable[None]]
) -> AsyncIterator[StreamEvent]:
    """The stream events of a run up to its end. The run starts once the follower listens."""
    view = None
    following = host.bus.follow.run(run, deltas=True, on_listening=announce)
    async with aclosing(following):
        async for event in following:
            if isinstance(event, LiveEvent):
                yield RawResponsesStreamEvent(bytes(event.event))
            elif isinstance(event, LogEvent):
                if view is None:
                    view = (await host.find_run(run, states)).view()
                for shown in view.feed(event.event, event.subject, event.sequence):
                    yield shown


async def _result(hosted: HostedRun, call: CallRequested, states: States) -> RunResult:
    """The result of a run that completed."""
    run = RunId(call.child)
    child = await _host(hosted).find_run(run, states)
    view = child.view()
    view.read(await states.log.read(run))
    done, agent, started = view.done, view.agent, view.state.started
    assert isinstance(done, RunDone) and agent is not None and started is not None
    result = RunResult(
        input=view.given_input,
        context_wrapper=child.context,
        starting_agent=child.agent(started.graph.start),
        max_turns=started.options.max_turns,
        run_id=run,
        omit_reasoning_ids=started.options.reasoning_ids == "omit",
    )
    result._take(view)
    result.final_output = final_output(child, view, done)
    child.context.usage = usage_of(call.usage)  # the caller's usage, which includes the child's
    return result


def _tool(hosted: HostedRun, call: CallRequested) -> AgentTool:
    tool = hosted.tool(call.agent, call.name)
    if not isinstance(tool, AgentTool):
        raise UserError(f"agent {call.agent!r} has no agent tool {call.name!r} here")
    return tool


def _host(hosted: HostedRun) -> Host:
    if hosted.host is None:
        raise UserError("agents as tools need a tool host on the bus")
    return hosted.host


def _raised(tool: AgentTool, error: Exception) -> Exception:
    if isinstance(error, AgentsException):
        return error
    return UserError(f"Error running tool {tool.name}: {error_text(error)}")
