"""The reader of one run: takes its events one by one, in order, and gives a row for each.

It works on a stored log and on an open run. A row shares its calls and questions with other
rows: when a later event tells more about them, they change in place, and the new row names them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, assert_never

import msgspec
from sandstream_actors.run.places import past_events
from sandstream_actors.run.takeovers import TakeoverCount
from sandstream_bus.errors import MessageError
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.attempts import Attempt, attempt_of
from sandstream_bus.wire.messages import (
    ApprovalDecided,
    ApprovalRequested,
    CallFinished,
    CallRequested,
    CallStarted,
    CancelRequested,
    ChildWaiting,
    ConversationOpened,
    InputStaged,
    ModelAnswered,
    ModelDeferred,
    RunDone,
    RunEvent,
    RunMoved,
    RunReopened,
    RunRestored,
    RunStarted,
    RunWaiting,
    TurnRequested,
)
from sandstream_bus.wire.subjects import run_in

from sandstream._inspect.rows import (
    Approval,
    Call,
    ChildCall,
    EventRow,
    Handoff,
    Item,
    Objection,
    TreeStep,
    item_of,
)
from sandstream._inspect.texts import guardrail_text, output_text


class RunReader:
    """Reads one run; without its id, the run of the first event."""

    def __init__(self, run: str = "") -> None:
        self.run = run
        self.steps: list[TreeStep] = []
        """What makes the run more than one agent's loop, in order."""
        self.children: dict[str, ChildCall] = {}
        """The steps that started other runs, by the id of the run."""
        self._agent = ""
        self._calls = _Calls()
        self._names: dict[str, str] = {}
        self._names_below: dict[tuple[str, str], str] = {}
        """The tools that runs below ask for, by run and call."""
        self._requests: dict[str, tuple[CallRequested, str]] = {}
        self._approvals: dict[str, Approval] = {}
        self._decided: set[tuple[str, str]] = set()
        self._takeovers = TakeoverCount()
        self._workers: dict[int, str] = {}
        """The process that began with the message at this sequence, where the log names it."""

    def read(self, events: Iterable[LogEvent]) -> list[EventRow]:
        """Take in several events."""
        return [self.feed(event) for event in events]

    def feed(self, logged: LogEvent) -> EventRow:
        """Take in the next event, and give its row."""
        event = logged.event
        self.run = self.run or run_in(logged.subject)
        attempt = attempt_of(logged.stored.headers)
        row = self._read(event, logged.stored.time, logged.sequence, attempt)
        row.lost_worker = self._workers.get(attempt.cause, "")
        self._workers[attempt.cause] = attempt.worker
        is_new = self._takeovers.note(event, attempt) > 0
        row.is_takeover = is_new and not isinstance(event, RunMoved)
        return row

    def _read(self, event: RunEvent, time: str, sequence: int, attempt: Attempt) -> EventRow:
        row = EventRow(
            run=self.run,
            sequence=sequence,
            time=time,
            event=event,
            agent=self._agent,
            agent_before=self._agent,
            attempt=attempt,
        )
        match event:
            case RunStarted():
                self._agent = event.graph.start
                row.items = self._calls.said(event.input, time)
            case RunRestored():
                with contextlib.suppress(MessageError):  # a state that another version saved
                    for _, past in past_events(event):
                        row.past.append(self._read(past, "", sequence, attempt))
            case ConversationOpened():
                row.items = _Calls().said(event.history, "")
            case InputStaged():
                said = [event.input] if isinstance(event.input, str) else event.input
                row.items = self._calls.said(said, time)
            case ModelAnswered():
                self._agent = event.agent
                row.items = self._calls.said(event.output, time)
            case CallRequested():
                self._requested(event, row)
            case CallStarted():
                row.name = self._name(event.call)
                row.request, row.requested_at = self._requests.get(event.call, (None, ""))
            case ChildWaiting():
                row.name = self._name(event.call)
                for it in event.approvals:
                    self._names_below[it.run, it.call] = it.name
                    self._names_below[it.run, it.call_id] = it.name
            case CallFinished():
                self._finished(event, row)
            case ApprovalRequested():
                self._asked(event, row)
            case ApprovalDecided():
                self._decide(event, row)
            case TurnRequested(reason="handoff"):
                self._calls.hand_over()
                self._add_step(Handoff(time=time, source=self._agent, target=event.agent))
                self._agent = event.agent
            case TurnRequested() | ModelDeferred() | RunWaiting() | CancelRequested():
                pass  # the event says all there is to know about it
            case RunMoved() | RunReopened() | RunDone():
                pass
            case _:
                assert_never(event)
        row.agent = self._agent
        return row

    def _add_step(self, step: TreeStep) -> None:
        if step.time:  # the steps of a saved state belong to the run that was saved
            self.steps.append(step)

    def _name(self, call: str) -> str:
        return self._names.get(call, call)

    # --- calls ---------------------------------------------------------------------------------

    def _requested(self, event: CallRequested, row: EventRow) -> None:
        row.name = self._names[event.call] = event.name or event.kind
        row.request, row.requested_at = self._requests[event.call] = (event, row.time)
        if event.traits.is_tool:
            row.call = self._calls.asked(event, row.time)
            row.call.state = "running"
            row.call.child = event.child
        if event.traits.is_child_run and event.child not in self.children and row.time:
            step = ChildCall(
                time=row.time, call=event.call, tool=event.name, arguments=event.arguments
            )
            self.children[event.child] = step
            self._add_step(step)

    def _finished(self, event: CallFinished, row: EventRow) -> None:
        row.name = self._name(event.call)
        row.request, row.requested_at = self._requests.get(event.call, (None, ""))
        for record in event.guardrails:
            if text := guardrail_text(record):
                row.objections.append(text)
                self._add_step(Objection(time=row.time, guardrail=record))
        call = self._calls.find(event.call)
        if call is None or not event.traits.is_tool:
            return
        row.call = call
        call.state = "failed" if event.error is not None else "done"
        call.error = event.error
        call.output = output_text(event.output) if event.output else ""
        call.duration_ms = event.duration_ms
        call.child = event.child or call.child

    # --- people --------------------------------------------------------------------------------

    def _asked(self, event: ApprovalRequested, row: EventRow) -> None:
        row.name = self._names[event.call] = self._names[event.call_id] = event.name
        if not event.run:
            row.call = self._calls.asked(event, row.time)
            row.call.questions.append(row)
        known = self._approvals.get(event.call)
        if known is None:
            row.approval = self._approvals[event.call] = Approval(time=row.time, asked=event)
            self._add_step(row.approval)
        elif not known.time:  # a question of a saved state is asked again
            known.time = row.time
            self._add_step(known)

    def _decide(self, event: ApprovalDecided, row: EventRow) -> None:
        row.name = self._name(event.call)
        row.name_below = self._names_below.get((event.run, event.call), "")
        row.is_late = (event.run, event.call) in self._decided
        self._decided.add((event.run, event.call))
        if not event.run and (call := self._calls.find(event.call)):
            row.call = call
            call.questions.append(row)
            if not event.approve:
                call.state = "rejected"
        if event.run not in ("", self.run):
            return
        for it in self._approvals.values():
            if it.decided is None and event.call in (it.asked.call, it.asked.call_id):
                it.decision = "approved" if event.approve else "rejected"
                it.decided, it.decided_at = event, row.time
                row.approval = it
                return


class _Calls:
    """The calls of a conversation, by the id in the log and by the one that the model gave."""

    def __init__(self) -> None:
        self._known: dict[str, Call] = {}
        self._latest: list[Call] = []
        """The calls since something was said."""

    def find(self, call: str) -> Call | None:
        return self._known.get(call)

    def asked(self, event: CallRequested | ApprovalRequested, time: str) -> Call:
        """The call that the log gives an id of its own."""
        call = self._of(event.call_id or event.call, event.name, event.arguments, time)
        self._known[event.call] = call
        return call

    def said(self, values: Iterable[Any], time: str) -> list[Item]:
        """Items of a message, each with its call."""
        items = [
            item_of(msgspec.json.decode(it) if isinstance(it, msgspec.Raw) else it) for it in values
        ]
        for item in items:
            if item.kind == "message" or (item.kind == "thought" and item.text):
                self._latest.clear()
            elif item.kind == "call":
                item.call = self._of(item.call_id, item.name, item.arguments, time)
            elif item.kind == "tool_output":
                item.call = self._of(item.call_id, "", "", time)
                item.call.state = "done"
                output = item.value.get("output")
                is_text = isinstance(output, str)
                item.call.output = output if is_text else msgspec.json.encode(output).decode()
        return items

    def hand_over(self) -> None:
        """The first call of an answer that no actor was asked to do is the handoff."""
        for call in self._latest:
            if call.state == "asked":
                call.state = "handoff"
                return

    def _of(self, call_id: str, name: str, arguments: str, time: str) -> Call:
        found = self._known.get(call_id)
        if found is None:
            found = Call(name=name or call_id, arguments=arguments, time=time, questions=[])
            self._known[call_id] = found
            self._latest.append(found)
        return found
