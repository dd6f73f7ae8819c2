"""The transcript of a session or a run: takes the events of its follower, gives blocks.

Pure: it knows no screen. Blocks are appended and change in place; :meth:`Transcript.changes` tells
which ones. Deltas of the model are shown until the stored answer replaces them.
"""

from __future__ import annotations

import itertools
from typing import assert_never

from sandstream_bus.counts import numbered
from sandstream_bus.wire.attempts import short_name
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
    RunMoved,
    RunReopened,
    RunRestored,
    RunStarted,
    RunWaiting,
    TurnRequested,
)

from sandstream._inspect.rows import Call, EventRow, Item
from sandstream._inspect.texts import call_text, error_text, output_text
from sandstream._inspect.visible_text import one_line
from sandstream.sessions.events import (
    CommandOutput,
    RunStep,
    SessionChanged,
    TextDelta,
    TurnBegan,
    TurnEnded,
)
from sandstream.tui.conversation.blocks import (
    AgentText,
    AnyBlock,
    CallStep,
    Note,
    Thought,
    Tone,
    TurnHead,
    UserText,
)
from sandstream.tui.conversation.call_text import shortened, title
from sandstream.tui.conversation.work import ForkedHere, WorkEvent

_MOST_UNSEEN = 12
"""How many events of a model's stream may come between two pieces of text: those that begin and
end its parts. If there are more, pieces are missing until the stored answer comes.
"""
_MOST_TITLE = 40
"""How many characters of a call a note has."""
_MOST_STEPS = 50
"""How many steps of a run below are kept for its call."""


class Transcript:
    """The blocks of one session or run.

    Args:
        is_session: Whether the turns of a session are shown. Its earlier turns are shown as they
            were, so a run's copy of the history is left out.
    """

    def __init__(self, *, is_session: bool) -> None:
        self.blocks: list[AnyBlock] = []
        self.sequence = 0
        """The last event of the log that is part of it."""
        self.took_over = ""
        """The process that last took over from a lost one; empty: none did."""
        self._is_session = is_session
        self._keys = itertools.count()
        self._changed: dict[int, AnyBlock] = {}
        self._calls: dict[int, CallStep] = {}
        """The blocks of calls, by the identity of the call."""
        self._by_call_id: dict[tuple[str, str], CallStep] = {}
        self._children: dict[str, CallStep] = {}
        self._live: dict[tuple[str, str], AgentText | Thought] = {}
        """What models write now, by run and kind."""
        self._heard: dict[tuple[str, int, int], int] = {}
        """The number of the last piece of each answer that a model writes."""
        self._early: dict[tuple[str, str], str] = {}
        """Output that came before its call."""
        self._heads: dict[int, TurnHead] = {}
        self._turn = 0
        self._stopped_for: str | None = None
        """Why a person wants the run to stop."""
        self._said: dict[str, str] = {}
        """The last text of each run."""

    def changes(self) -> list[AnyBlock]:
        """The blocks that are new or have changed since the last call, in order."""
        changed = sorted(self._changed.values(), key=lambda it: it.key)
        self._changed.clear()
        return changed

    @property
    def last_answer(self) -> str:
        """The last text of an agent; empty: there is none."""
        texts = (it.text for it in reversed(self.blocks) if isinstance(it, AgentText))
        return next(texts, "")

    def take(self, event: WorkEvent) -> None:
        """Take in the next event of the follower."""
        match event:
            case ForkedHere():
                self._forked(event)
            case SessionChanged():
                pass  # the screen shows the state
            case TurnBegan():
                self._begin(event)
            case RunStep():
                self._turn = event.turn
                self.sequence = max(self.sequence, event.row.sequence)
                if event.depth:
                    self._below(event)
                else:
                    self._step(event.row)
            case TextDelta():
                self._delta(event)
            case CommandOutput():
                self._output(event)
            case TurnEnded():
                head = self._heads.get(event.turn.number)
                if head is not None:
                    head.ended = event.turn
                    self._touch(head)
            case _:
                assert_never(event)

    def own_call(self, call: Call) -> None:
        """Show a command of the person at this screen. It is not in the log.

        Args:
            call: The command.
        """
        self._call(call, "").is_own = True

    def own_output(self, call: Call, text: str) -> None:
        """Show more output of such a command, or its end.

        Args:
            call: The command.
            text: The new output.
        """
        block = self._call(call, "")
        block.hear(text)

    # --- turns ---------------------------------------------------------------------------------

    def _forked(self, event: ForkedHere) -> None:
        origin = event.origin
        gone = "; its source is no longer in the log" if event.is_gone else ""
        self._note(f"forked from {origin.session} after turn {origin.turn}{gone}", "good")
        self._heads = {}  # the fork counts its own turns
        self.took_over = ""

    def _begin(self, event: TurnBegan) -> None:
        self._turn = event.turn
        if event.turn and event.turn not in self._heads:
            self.took_over = ""
            head = TurnHead(key=next(self._keys), turn=event.turn, run=event.run)
            self._heads[event.turn] = head
            self._add(head)

    # --- the run that is shown -----------------------------------------------------------------

    def _step(self, row: EventRow) -> None:
        if row.is_takeover:
            self._takeover(row)
        for past in row.past:
            self._step(past)
        event = row.event
        match event:
            case RunStarted() | InputStaged():
                by = event.by if isinstance(event, InputStaged) else ""
                self._say(row, by)
            case RunRestored():
                pass  # its events were told
            case ConversationOpened():
                if row.items and not self._is_session:
                    items = numbered(len(row.items), "item")
                    self._note(f"continues a conversation of {items}", "quiet")
            case ModelAnswered():
                self._answered(row)
            case ModelDeferred():
                why = f"{event.error.message}; asks again in {event.delay_s:g} s"
                self._note(f"the model has to wait: {why}", "wait")
            case CallRequested() | ApprovalRequested():
                if row.call is not None:
                    block = self._call(row.call, row.run)
                    block.is_waiting = isinstance(event, ApprovalRequested)
                    self._name(block, row.run, event.call, event.call_id)
                if isinstance(event, CallRequested) and event.child:
                    self._child(event.child, row)
            case ApprovalDecided():
                self._decided(event, row)
            case CallFinished():
                self._finished(event, row)
            case TurnRequested():
                if event.reason == "handoff":
                    self._note(f"{row.agent_before} hands over to {event.agent}")
            case CancelRequested():
                why = f": {event.reason}" if event.reason else ""
                self._stopped_for = event.reason
                self._note(f"stop requested{why}", "wait")
            case RunMoved():
                self._note(f"another process continues (pool {event.pool})", "wait")
            case RunReopened():
                self._note(f"reopened: {event.reason}", "wait")
            case RunDone():
                self._done(event, row)
            case RunWaiting() | ChildWaiting() | CallStarted():
                pass  # the questions themselves are told
            case _:
                assert_never(event)
        for text in row.objections:
            self._note(text, "bad")

    def _takeover(self, row: EventRow, within: str = "") -> None:
        """Tell who took over what.

        Args:
            row: The first sign of it.
            within: The run below that it belongs to; empty: the one that is shown.
        """
        by = short_name(row.attempt.worker) or "another process"
        lost = f"{short_name(row.lost_worker)}, which" if row.lost_worker else "a process that"
        self.took_over = by
        what, where = _taken(row), f" (in {within})" if within else ""
        self._note(f"{by} took over{what} from {lost} died or lost its lease{where}", "wait")

    def _say(self, row: EventRow, by: str = "") -> None:
        for item in row.items:
            self._item(item, row, by)

    def _item(self, item: Item, row: EventRow, by: str) -> None:
        match item.kind:
            case "message" if item.role == "user":
                self._add(UserText(key=next(self._keys), turn=self._turn, text=item.text, by=by))
            case "message" if item.role == "assistant":
                self._said[row.run] = item.text
                who = row.agent
                self._add(AgentText(key=next(self._keys), turn=self._turn, who=who, text=item.text))
            case "message":
                self._note(f"{item.role}: {item.text}", "quiet")
            case "thought" if item.text:
                self._add(Thought(key=next(self._keys), turn=self._turn, text=item.text))
            case "call" | "tool_output" if item.call is not None:
                self._name(self._call(item.call, row.run), row.run, item.call_id)
            case "other":
                self._note(f"used {item.type.removesuffix('_call')}", "quiet")
            case _:
                pass

    def _answered(self, row: EventRow) -> None:
        """The stored answer replaces what was written live."""
        texts = [it for it in row.items if it.kind == "message" and it.role == "assistant"]
        thoughts = [it for it in row.items if it.kind == "thought" and it.text]
        rest = list(row.items)
        for kind, found in (("text", texts), ("reasoning", thoughts)):
            live = self._live.pop((row.run, kind), None)
            if live is None:
                continue
            live.is_live = False
            if found:
                live.text = found[0].text
                rest = [it for it in rest if it is not found[0]]
                if isinstance(live, AgentText):
                    live.who = row.agent
                    self._said[row.run] = live.text
            self._touch(live)
        for item in rest:
            self._item(item, row, "")

    def _done(self, event: RunDone, row: EventRow) -> None:
        for kind in ("text", "reasoning"):
            if live := self._live.pop((row.run, kind), None):
                live.is_live = False
                self._touch(live)
        for block in self._calls.values():
            is_open = block.call.state in ("asked", "running") and not block.is_own
            if is_open and block.turn == self._turn and not block.is_stopped:
                block.is_stopped, block.is_waiting = True, False
                self._touch(block)
        if event.error is not None and event.error.message != self._stopped_for:
            self._note(f"ended as {event.status}: {error_text(event.error)}", "bad")
        elif event.status != "completed":
            self._note(f"ended as {event.status}", "wait")
        elif event.output and output_text(event.output) != self._said.get(row.run):
            text = output_text(event.output)
            who = event.agent
            self._add(AgentText(key=next(self._keys), turn=self._turn, who=who, text=text))

    # --- calls ---------------------------------------------------------------------------------

    def _call(self, call: Call, run: str) -> CallStep:
        block = self._calls.get(id(call))
        if block is None:
            block = CallStep(key=next(self._keys), turn=self._turn, call=call)
            self._calls[id(call)] = block
            self._add(block)
        else:
            self._touch(block)
        return block

    def _name(self, block: CallStep, run: str, *ids: str) -> None:
        """Output of the call comes under one of its ids."""
        for it in ids:
            if it:
                self._by_call_id[run, it] = block
                if early := self._early.pop((run, it), ""):
                    block.hear(early)

    def _child(self, child: str, row: EventRow) -> None:
        if row.call is not None:
            self._children[child] = self._call(row.call, row.run)

    def _finished(self, event: CallFinished, row: EventRow) -> None:
        if row.call is not None:
            self._call(row.call, row.run).is_waiting = False
        elif event.error is not None:
            self._note(f"{row.name}: {event.error.message}", "bad")

    def _decided(self, event: ApprovalDecided, row: EventRow) -> None:
        if row.call is not None:
            self._call(row.call, row.run).is_waiting = False
        what = "approved" if event.approve else "rejected"
        if event.expired:
            what = "expired without an answer"
        by = f" by {event.by}" if event.by else ""
        always = ", also from now on" if event.always else ""
        why = f": {event.message}" if event.message else ""
        late = " (too late: it was decided)" if row.is_late else ""
        tone: Tone = "good" if event.approve else "bad"
        self._note(f"{row.name_below or row.name} {what}{by}{always}{why}{late}", tone)

    def _output(self, event: CommandOutput) -> None:
        block = self._by_call_id.get((event.run, event.call)) or self._children.get(event.run)
        if block is None:
            key = (event.run, event.call)
            self._early[key] = (self._early.get(key, "") + event.text)[-4096:]
            return
        block.hear(event.text)
        self._touch(block)

    # --- runs below ----------------------------------------------------------------------------

    def _below(self, step: RunStep) -> None:
        """Show what a child run does, in the block of the call that started it."""
        row = step.row
        if row.is_takeover:
            self._takeover(row, step.name or row.run)
        block = self._children.get(row.run)
        event = row.event
        if isinstance(event, CallRequested) and event.child and block is not None:
            self._children[event.child] = block
        if block is None or not (text := _step_text(row)):
            return
        block.steps = [*block.steps[-_MOST_STEPS:], f"{'  ' * (step.depth - 1)}{text}"]
        self._touch(block)

    # --- live ----------------------------------------------------------------------------------

    def _delta(self, event: TextDelta) -> None:
        answer = (event.run, event.model_turn, event.attempt)
        has_gap = event.number - self._heard.get(answer, 0) > _MOST_UNSEEN
        self._heard[answer] = event.number
        if event.kind == "arguments":
            return
        key = (event.run, event.kind)
        block = self._live.get(key)
        if block is None:
            if event.kind == "reasoning":
                block = Thought(key=next(self._keys), turn=event.turn, text="", is_live=True)
            else:
                block = AgentText(
                    key=next(self._keys), turn=event.turn, who="", text="", is_live=True
                )
            block.attempt = event.attempt
            self._live[key] = block
            self._add(block)
        if event.attempt > block.attempt:  # what an earlier try wrote no longer counts
            block.attempt, block.text = event.attempt, ""
        if event.attempt == block.attempt:
            if has_gap:  # the screen was opened meanwhile, or the connection was lost
                block.text = f"{block.text} …\n\n".lstrip()
            block.text += event.text
            self._touch(block)

    # --- blocks --------------------------------------------------------------------------------

    def _note(self, text: str, tone: Tone = "") -> None:
        self._add(Note(key=next(self._keys), turn=self._turn, text=text, tone=tone))

    def _add(self, block: AnyBlock) -> None:
        self.blocks.append(block)
        self._touch(block)

    def _touch(self, block: AnyBlock) -> None:
        self._changed[block.key] = block


def _taken(row: EventRow) -> str:
    """What a process took over: a command, a tool call, another step; empty: the run itself."""
    if not isinstance(row.event, CallStarted | CallFinished):
        return ""
    if row.call is None:
        return f" the step {row.name}"
    return f" {shortened(title(row.call), _MOST_TITLE)}"


def _step_text(row: EventRow) -> str:
    """One line about an event of a run below; empty: nothing to tell."""
    event = row.event
    if isinstance(event, CallRequested) and event.traits.is_tool:
        return "→ " + one_line(call_text(event.name, event.arguments))
    if isinstance(event, CallFinished) and event.traits.is_tool:
        result = error_text(event.error) if event.error else output_text(event.output)
        return "← " + one_line(result)
    if isinstance(event, ModelAnswered):
        texts = [it.text for it in row.items if it.kind == "message"]
        return one_line(texts[-1]) if texts else ""
    if isinstance(event, RunDone) and event.error is not None:
        return error_text(event.error)
    return ""
