"""Child runs: an agent as a tool is a run of its own, whose end comes back as a result.

A child is started once, whoever starts it: its id follows from the call. It tells its parent that
it waits for a person, and how it ended. A parent that ends first cancels what it has started.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence

import msgspec
from msgspec import Raw
from sandstream_bus.bus import Bus
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.headers import TRACEPARENT, caused_by
from sandstream_bus.log import Conflict
from sandstream_bus.messages import (
    ApprovalDecided,
    CallFinished,
    CallRequested,
    CancelRequested,
    ChildInput,
    ChildWaiting,
    ErrorInfo,
    Message,
    ParentLink,
    RunDone,
    RunMoved,
    RunStarted,
)
from sandstream_bus.specs import NO_JSON, AgentSpec, ChildGraph, ChildSpec, GraphSpec
from sandstream_bus.subjects import RunId, is_token

from sandstream_actors.budgets import smaller, with_deadline
from sandstream_actors.harness.tool_steps import plain_input
from sandstream_actors.harness.tree_budget import share_of
from sandstream_actors.output_items import user_message
from sandstream_actors.run_headers import call_parent, trace_header
from sandstream_actors.run_state import RunState

logger = logging.getLogger(__name__)

MAX_DEPTH = 16
"""So many levels of runs may be below a run: nobody wants more, and each may multiply them."""
_child_input = msgspec.json.Decoder(ChildInput).decode


class Children:
    """The links between parents and children, in both directions."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    # --- downwards ---------------------------------------------------------------------------

    async def start(self, state: RunState, calls: Sequence[CallRequested]) -> None:
        """Start the children of calls that are in the log."""
        if not calls:
            return
        await asyncio.gather(*(self._start_one(state, call) for call in calls))
        for sequence, decided in state.decided_below.items():  # whoever had to may have died
            await self.pass_on(state.run, decided, sequence)
        state.fold(await self._bus.log.read(state.run, after=state.last_seq))
        if state.done is not None:  # ended meanwhile, by somebody who did not see these calls
            await self.cancel_open(state)

    async def _start_one(self, state: RunState, call: CallRequested) -> None:
        tool = state.tool(call.name)
        assert state.started is not None and tool is not None and tool.child is not None
        graph = state.started.graph.children.get(tool.child.graph)
        if graph is None:
            message = f"the agent of the tool {call.name} is not part of this run"
            await self._fail(state, call, ErrorInfo(code="unknown_agent", message=message))
            return
        input = _input(state, call, tool.child)
        if isinstance(input, ErrorInfo):
            await self._fail(state, call, input)
            return
        if _depth(state) == MAX_DEPTH:
            await self._stop_tree(state, call)
            return
        started = self._started(state, call, tool.child, graph, input)
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
                headers={TRACEPARENT: call_parent(state, call.call)},
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
        input: ChildInput,
    ) -> RunStarted:
        started = state.started
        assert started is not None
        options = child.options
        own = with_deadline(options.budget) if options.budget else None
        first = graph.agents[graph.start]
        parent = started.parent
        return RunStarted(
            graph=GraphSpec(
                start=graph.start,
                agents={key: _placed(state, agent) for key, agent in graph.agents.items()},
                children=reached(graph, started.graph.children),
            ),
            input=input.input,
            is_text=input.is_text,
            options=msgspec.structs.replace(
                options,
                stream=options.stream or child.watch,
                budget=smaller(own, share_of(state)),
            ),
            pool=first.pool or state.places.pool,
            context=started.context,
            parent=ParentLink(
                run=state.run,
                call=call.call,
                turn=call.turn,
                pool=state.pool,
                root=parent.root if parent else state.run,
                depth=_depth(state) + 1,
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

    async def _stop_tree(self, state: RunState, call: CallRequested) -> None:
        """Agents that call each other in a circle: if only the deepest run failed, each of those
        above would try again, as often as its turns allow.
        """
        assert state.started is not None and state.started.parent is not None
        root = state.started.parent.root
        reason = (
            f"agents as tools call each other more than {MAX_DEPTH} levels deep (at last "
            f"{state.agent.name!r} with {call.name!r}): is there a circle?"
        )
        await self._bus.work_log.send(
            self._bus.subjects.cancel(root),
            CancelRequested(code="budget", budget="depth", reason=reason),
            msg_id=f"{root}:cancel:depth",
        )

    async def _fail(self, state: RunState, call: CallRequested, error: ErrorInfo) -> None:
        """There can be no child: the call's outcome says why."""
        failed = CallFinished(call=call.call, kind="child", turn=call.turn, error=error)
        await self._bus.work_log.send(
            self._bus.subjects.result(state.run, state.pool),
            failed,
            msg_id=f"{state.run}:{call.call}:nochild:{state.pool}",
        )

    async def pass_on(self, above: RunId, decided: ApprovalDecided, sequence: int) -> None:
        """Tell a run somewhere below what a person has answered."""
        if not is_token(decided.run) or not await self._is_below(RunId(decided.run), above):
            # whoever may answer for this run may not answer for others
            extra = {"run": above, "child": decided.run[:64]}
            logger.warning("an answer for a run that is not below", extra=extra)
            return
        crashpoint("harness.before_pass_on")
        await self._bus.work_log.send(
            self._bus.subjects.approval_decided(decided.run),
            msgspec.structs.replace(decided, run=""),
            msg_id=f"{decided.run}:passed-on:{sequence}",
            headers=caused_by(sequence, None),
        )
        crashpoint("harness.after_pass_on")

    async def _is_below(self, run: RunId, above: RunId) -> bool:
        while run != above:
            first = await self._bus.log.read_subject(self._bus.subjects.start(run, "*"), limit=1)
            started = RunState.of(run, first).started
            if started is None or started.parent is None:
                return False
            run = RunId(started.parent.run)
        return True

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
            headers=caused_by(state.last_seq, trace_header(state)),
        )


def _input(state: RunState, call: CallRequested, child: ChildSpec) -> ChildInput | ErrorInfo:
    if child.input == "host":
        made = state.results[f"{call.call}-input"]
        return made.error or _child_input(made.output)
    text = plain_input(call.arguments)
    if text is None:
        message = f"Invalid JSON input for tool {call.name}: it needs a text 'input'"
        return ErrorInfo(code="model_behavior", message=message)
    return ChildInput(input=[user_message(text)], is_text=True)


def _depth(state: RunState) -> int:
    parent = state.started.parent if state.started else None
    return parent.depth if parent else 0


def reached(graph: ChildGraph, known: dict[str, ChildGraph]) -> dict[str, ChildGraph]:
    """What the child's own agents may start: all of a hundred siblings would be in each one's log.

    Where the tool host decides who is next, that may be an agent with any of the tools.
    """
    found: dict[str, ChildGraph] = {}
    todo = [graph]
    while todo:
        for agent in todo.pop().agents.values():
            if any(it.ask_host for it in agent.handoffs):
                return known
            for tool in agent.tools:
                key = tool.child.graph if tool.child else ""
                if key in known and key not in found:
                    found[key] = known[key]
                    todo.append(known[key])
    return found


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
        output=_output(state, done) if done.status == "completed" else NO_JSON,
        error=None if done.status == "completed" else _error(done),
        usage=state.usage,
        turns=state.tree_turns,
        tool_calls=state.tool_calls_made,
        child=state.run,
    )


def _error(done: RunDone) -> ErrorInfo:
    """Why a child run failed. That it was cancelled does not cancel its parent."""
    error = done.error or ErrorInfo(code=done.status, message=f"the run ended: {done.status}")
    if error.code != "cancelled":
        return error
    return msgspec.structs.replace(error, code="child_cancelled")


def _output(state: RunState, done: RunDone) -> Raw:
    """The final output; in place of an empty one that nobody has checked the last thing said."""
    if bytes(done.output) not in (b"", b'""', b"null") or state.agent.checks_output:
        return done.output or Raw(b'""')
    for item in reversed(state.said):
        text = _text_of(item)
        if text:
            return Raw(msgspec.json.encode(text))
    return Raw(b'""')


class _Part(msgspec.Struct):
    text: str = ""


class _Said(msgspec.Struct):
    """A message of the model, or the output of a tool; other items have no text."""

    role: str = ""
    content: str | list[_Part] | None = None
    output: str = ""


_said = msgspec.json.Decoder(_Said).decode


def _text_of(item: Raw) -> str:
    try:
        said = _said(item)
    except msgspec.DecodeError:  # content parts of a tool, or an item of some other kind
        return ""
    if said.role == "user":  # more input that came meanwhile
        return ""
    if isinstance(said.content, list):
        return "".join(part.text for part in said.content)
    return said.content or said.output
