"""Child runs: an agent as a tool is a run of its own, whose end comes back as a result.

A child is started once, whoever starts it: its id follows from the call. It tells its parent that
it waits for a person, and how it ended. A parent that ends first cancels what it has started.
"""

from __future__ import annotations

import asyncio
import uuid

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.headers import TRACEPARENT, new_traceparent
from sandstream_bus.log import Conflict
from sandstream_bus.messages import (
    CallFinished,
    CallRequested,
    CancelRequested,
    ChildInput,
    ChildWaiting,
    ErrorInfo,
    Message,
    ParentLink,
    RunMoved,
    RunStarted,
)
from sandstream_bus.specs import NO_JSON, AgentSpec, ChildGraph, ChildSpec, GraphSpec
from sandstream_bus.subjects import RunId

from sandstream_actors.budgets import smaller
from sandstream_actors.harness.tool_steps import plain_input
from sandstream_actors.harness.tree_budget import share_of
from sandstream_actors.output_items import user_message
from sandstream_actors.run_state import RunState

_child_input = msgspec.json.Decoder(ChildInput).decode


class Children:
    """The links between parents and children, in both directions."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    # --- downwards ---------------------------------------------------------------------------

    async def start(self, state: RunState, call: CallRequested, count: int) -> None:
        """Start the child of a call, which is one of ``count`` that start together."""
        tool = state.tool(call.name)
        assert state.started is not None and tool is not None and tool.child is not None
        graph = state.started.graph.children.get(tool.child.graph)
        if graph is None:
            await self._fail(state, call, f"the agent of {call.name} is not part of this run")
            return
        input = _input(state, call, tool.child)
        if input is None:
            await self._fail(state, call, f"the arguments of {call.name} have no text 'input'")
            return
        started = self._started(state, call, tool.child, graph, input, count)
        run = RunId(call.child)
        crashpoint("harness.before_child")
        try:
            await self._bus.work_log.append(
                run,
                self._bus.subjects.start(run, started.pool),
                started,
                after=0,
                # a new one for each try: another parent's would pass for ours
                msg_id=f"{run}:start:{uuid.uuid4().hex}",
                headers={TRACEPARENT: state.traceparent or new_traceparent()},
            )
        except Conflict:
            await self._attach(run, started)
        crashpoint("harness.after_child")

    def _started(
        self,
        state: RunState,
        call: CallRequested,
        child: ChildSpec,
        graph: ChildGraph,
        input: list[Raw],
        count: int,
    ) -> RunStarted:
        started = state.started
        assert started is not None
        options = child.options
        first = graph.agents[graph.start]
        parent = started.parent
        return RunStarted(
            graph=GraphSpec(
                start=graph.start,
                agents={key: _placed(state, agent) for key, agent in graph.agents.items()},
                children=started.graph.children,
            ),
            input=input,
            is_text=child.input == "plain",
            options=msgspec.structs.replace(
                options,
                stream=options.stream or child.watch,
                budget=smaller(options.budget, share_of(state, count)),
            ),
            pool=first.pool or state.places.pool,
            context=started.context,
            parent=ParentLink(
                run=state.run,
                call=call.call,
                turn=call.turn,
                pool=state.pool,
                root=parent.root if parent else state.run,
                agent=call.agent,
                tool=call.name,
                call_id=call.call_id,
                arguments=call.arguments,
            ),
        )

    async def _attach(self, run: RunId, wanted: RunStarted) -> None:
        """The child exists: take it along if its parent has moved; tell its end if it is over."""
        assert wanted.parent is not None
        host = wanted.graph.agents[wanted.graph.start].host
        while True:
            child = RunState.of(run, await self._bus.log.read(run))
            if child.started is None:
                return  # it was cancelled before it began
            is_ours = child.places.parent_pool == wanted.parent.pool
            if child.done is None and (not is_ours or child.places.pool != wanted.pool):
                moved = RunMoved(pool=wanted.pool, host=host, parent_pool=wanted.parent.pool)
                try:
                    await self._bus.work_log.append(
                        run,
                        self._bus.subjects.turn(run, wanted.pool),
                        moved,
                        after=child.last_seq,
                        msg_id=f"{run}:move:{uuid.uuid4().hex}",
                    )
                except Conflict:
                    continue
                return
            if child.done is not None:
                await self._send_up(wanted.parent.pool, child, _outcome(child), "done")
            elif child.waiting is not None:
                await self.report_waiting(child)
            return

    async def _fail(self, state: RunState, call: CallRequested, message: str) -> None:
        """There can be no child: the call's outcome says why."""
        failed = CallFinished(
            call=call.call,
            kind="child",
            turn=call.turn,
            error=ErrorInfo(code="model_behavior", message=message),
        )
        await self._bus.work_log.send(
            self._bus.subjects.result(state.run, state.pool),
            failed,
            msg_id=f"{state.run}:{call.call}:nochild",
        )

    async def close_tree(self, state: RunState) -> None:
        """What follows in the tree from the end of a run."""
        await self.cancel_open(state)
        await self.report_end(state)

    async def cancel_open(self, state: RunState) -> None:
        """The run is over: what it has started and waits for no longer is in vain."""
        open_children = state.open_children()
        if not open_children:
            return
        crashpoint("harness.before_cancel_children")
        await asyncio.gather(
            *(
                self._bus.work_log.send(
                    self._bus.subjects.cancel(call.child),
                    CancelRequested(reason=f"its parent run {state.run} has ended"),
                    msg_id=f"{call.child}:cancel:immediate",
                )
                for call in open_children
            )
        )

    # --- upwards -----------------------------------------------------------------------------

    async def report_end(self, state: RunState) -> None:
        """A child run has ended: that is the outcome of its parent's call."""
        if state.started is None or state.started.parent is None or state.done is None:
            return
        crashpoint("harness.before_report")
        await self._send_up(state.places.parent_pool, state, _outcome(state), "done")
        crashpoint("harness.after_report")

    async def report_waiting(self, state: RunState) -> None:
        """A child run waits for a person: somebody above can see it and pass the answer on."""
        parent = state.started.parent if state.started else None
        if parent is None or state.waiting is None:
            return
        message = ChildWaiting(
            call=parent.call,
            turn=parent.turn,
            child=state.run,
            approvals=[
                msgspec.structs.replace(it, run=it.run or state.run)
                for it in state.waiting.approvals
            ],
        )
        await self._send_up(state.places.parent_pool, state, message, f"wait{state.waits}")

    async def _send_up(self, pool: str, state: RunState, message: Message, name: str) -> None:
        assert state.started is not None and state.started.parent is not None
        await self._bus.work_log.send(
            self._bus.subjects.result(state.started.parent.run, pool),
            message,
            msg_id=f"{state.run}:up:{name}{state.dones}:{pool}",
        )


def _input(state: RunState, call: CallRequested, child: ChildSpec) -> list[Raw] | None:
    if child.input == "host":
        return _child_input(state.results[f"{call.call}-input"].output).input
    text = plain_input(call.arguments)
    return None if text is None else [user_message(text)]


def _placed(state: RunState, agent: AgentSpec) -> AgentSpec:
    """The agent with its callables where they are now."""
    return msgspec.structs.replace(agent, host=state.places.host_of(agent.host))


def _outcome(state: RunState) -> CallFinished:
    done = state.done
    parent = state.started.parent if state.started else None
    assert done is not None and parent is not None
    return CallFinished(
        call=parent.call,
        kind="child",
        turn=parent.turn,
        output=(done.output or Raw(b'""')) if done.status == "completed" else NO_JSON,
        error=None if done.status == "completed" else done.error,
        usage=state.usage,
        turns=state.tree_turns,
        tool_calls=state.tool_calls_made,
        child=state.run,
    )
