"""Child runs: an agent as a tool is a separate run, whose end becomes the result of the call.

A child's id is derived from the call, so it is started only once even if several processes try. It
reports to its parent when it waits for a person and when it ends. If the parent ends first, it
cancels its open children.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence

import msgspec
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.logs.runs import Conflict
from sandstream_bus.wire.attempts import caused_by
from sandstream_bus.wire.headers import TRACEPARENT
from sandstream_bus.wire.messages import (
    ApprovalDecided,
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
from sandstream_bus.wire.specs import AgentSpec, ChildGraph, ChildSpec, GraphSpec
from sandstream_bus.wire.subjects import RunId, is_token

from sandstream_actors.harness.retry_plan import plan_child_retry
from sandstream_actors.harness.tool_steps import plain_input
from sandstream_actors.harness.tree_budget import share_of
from sandstream_actors.run.budgets import smaller, with_deadline
from sandstream_actors.run.headers import call_parent
from sandstream_actors.run.output_items import user_message
from sandstream_actors.run.retry import attempt_of
from sandstream_actors.run.state import RunState
from sandstream_actors.run.tree_ends import TreeEnds, outcome_of

logger = logging.getLogger(__name__)

MAX_DEPTH = 16
"""The maximum depth of child runs: limits exponential growth."""
_child_input = msgspec.json.Decoder(ChildInput).decode


class Children(TreeEnds):
    """The links between parents and children, in both directions."""

    # --- downwards ---------------------------------------------------------------------------

    async def start(self, state: RunState, calls: Sequence[CallRequested]) -> None:
        """Start the children of calls that are in the log."""
        if not calls:
            return
        await asyncio.gather(*(self._start_one(state, call) for call in calls))
        # the process that had to pass it on may have died
        for sequence, decided in state.decided_below.items():
            await self.pass_on(state.run, decided, sequence)
        state.fold(await self._bus.log.read(state.run, after=state.last_seq))
        if state.done is not None:  # another process ended the run before it saw these calls
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
                # a new id for each try: the server must not treat it as a duplicate of another's
                msg_id=f"{run}:start:{uuid.uuid4().hex}",
                headers={TRACEPARENT: call_parent(state, call.call)},
            )
        except Conflict:
            await self._attach(state, call, run, started)
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
                asked_at=state.last_seq,
            ),
        )

    async def _attach(
        self, state: RunState, call: CallRequested, run: RunId, wanted: RunStarted
    ) -> None:
        """Handle a child that exists: move it if its parent has moved; report its end if it has
        ended.
        """
        assert wanted.parent is not None
        host = wanted.graph.agents[wanted.graph.start].host
        while True:
            child = RunState.of(run, await self._bus.log.read(run))
            if child.started is None:
                return  # it was cancelled before it started
            link = child.started.parent
            if link is None or (link.run, link.call) != (state.run, call.call):
                message = f"the run id {run} is taken by a run that {state.run} has not started"
                await self._fail(state, call, ErrorInfo(code="run_id_taken", message=message))
                return
            is_ours = child.places.parent_pool == wanted.parent.pool
            if child.past.attempt < call.attempt and not _has_completed(child):
                if await self._retry(child, call, wanted, host):
                    return
                continue
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
                outcome = msgspec.structs.replace(outcome_of(child), attempt=call.attempt)
                name = f"done-a{call.attempt}-" if call.attempt else "done"
                await self.send_up(wanted.parent.pool, child, outcome, name)
            elif child.waiting is not None:
                await self.report_waiting(child)
            return

    async def _retry(
        self, child: RunState, call: CallRequested, wanted: RunStarted, host: str
    ) -> bool:
        """Retry a child that failed or was cancelled with its parent, from the step that failed.
        False: the child has changed meanwhile.
        """
        assert wanted.parent is not None
        places = child.places
        here = (places.pool, places.parent_pool) == (wanted.pool, wanted.parent.pool)
        message: Message
        if here:
            message = plan_child_retry(child, call.attempt, wanted.options.budget)
        else:
            message = RunMoved(pool=wanted.pool, host=host, parent_pool=wanted.parent.pool)
        crashpoint("retry.before_child")
        try:
            await self._bus.work_log.append(
                child.run,
                self._bus.subjects.turn(child.run, child.pool if here else wanted.pool),
                message,
                after=child.last_seq,
                msg_id=f"{child.run}:retry:{uuid.uuid4().hex}",
            )
        except Conflict:
            return False
        crashpoint("retry.after_child")
        return here

    async def _stop_tree(self, state: RunState, call: CallRequested) -> None:
        """Detects agents that call each other in a circle. If only the deepest run failed, each run
        above would retry as often as its turns allow.
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
        """The child cannot start: the call's outcome gives the reason."""
        failed = CallFinished(
            call=call.call, kind="child", turn=call.turn, error=error, attempt=call.attempt
        )
        await self._bus.work_log.send(
            self._bus.subjects.result(state.run, state.pool),
            failed,
            msg_id=f"{state.run}:{attempt_of(call)}:nochild:{state.pool}",
        )

    async def pass_on(self, above: RunId, decided: ApprovalDecided, sequence: int) -> None:
        """Pass a person's decision on to a run below."""
        if not is_token(decided.run) or not await self._is_below(RunId(decided.run), above):
            # a user who may decide for this run may not decide for other trees
            extra = {"run": above, "child": decided.run[:64]}
            logger.warning("ignored a decision for a run outside this tree", extra=extra)
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

    # --- upwards -----------------------------------------------------------------------------

    async def report_waiting(self, state: RunState) -> None:
        """Report to the parent that a child run waits for a person, so that the root run shows the
        approval.
        """
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
        await self.send_up(state.places.parent_pool, state, message, f"wait{state.waits}")


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
    """The graphs that the child's own agents may start. Without this, each child's log would
    contain the graphs of all its siblings.

    If the tool host chooses the next agent, any graph may be needed.
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
    """The agent with the current host of its callables."""
    return msgspec.structs.replace(agent, host=state.places.host_of(agent.host))


def _has_completed(child: RunState) -> bool:
    return child.done is not None and child.done.status == "completed"
