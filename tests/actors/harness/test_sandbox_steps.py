"""The agent loop with a sandbox, as functions: open before the first turn, close before the end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sandstream_actors.harness.step_kinds import Ask, AskModel, Step, Wait
from sandstream_actors.harness.steps import next_step
from sandstream_actors.run.ends import Finish
from sandstream_actors.run.sandbox_calls import closing_calls
from sandstream_actors.run.state import RunState
from sandstream_bus.wire.messages import (
    CallFinished,
    CallRequested,
    CancelRequested,
    ErrorInfo,
    RunEvent,
    RunMoved,
)
from sandstream_bus.wire.sandboxes import Checkpointed, Opened, SandboxSpec, SandboxUse
from sandstream_bus.wire.specs import ToolSpec
from sandstream_bus.wire.subjects import sandbox_of
from support.scripted_log import RUN, answer, begin, calls, ends, log, raw, says

SANDBOX = sandbox_of(RUN, "a")
OPENED = Opened(sandbox=SANDBOX, provider="local", node="n1", generation=1, root="/workspace")
EXEC = ToolSpec(name="exec_command", definition=raw({"type": "function"}), sandbox=True)
OWN = ToolSpec(name="own", definition=raw({"type": "function"}))


def starts(*tools: ToolSpec, **use: Any) -> RunEvent:
    return begin(*(tools or (EXEC, OWN)), sandbox=SandboxUse(spec=SandboxSpec(), **use))


def asked(call: str, kind: Any, turn: int = 1) -> CallRequested:
    return CallRequested(
        call=call, kind=kind, turn=turn, agent="a", reply_pool="main", sandbox=SANDBOX
    )


def opened() -> list[RunEvent]:
    return [asked("t1-open", "open"), ends("t1-open", msgspec.to_builtins(OPENED), kind="open")]


def after(*events: RunEvent) -> Step:
    return next_step(RunState.of(RUN, log(*events)))


def only_call(step: Step) -> CallRequested:
    assert isinstance(step, Ask), step
    (call,) = step.calls
    return call


def test_the_first_turn_opens_the_sandbox_once() -> None:
    call = only_call(after(starts()))
    assert (call.kind, call.call, call.sandbox) == ("open", "t1-open", SANDBOX)
    assert isinstance(after(starts(), asked("t1-open", "open")), Wait)
    assert isinstance(after(starts(), *opened()), AskModel)


def test_a_callers_sandbox_keeps_its_name() -> None:
    assert only_call(after(starts(id="s-1", owned=False))).sandbox == "s-1"


def test_built_in_tools_go_to_the_sandbox_and_others_to_the_host() -> None:
    step = after(
        starts(cwd="src"),
        *opened(),
        answer(1, calls("exec_command", "c1"), calls("own", "c2")),
    )
    assert isinstance(step, Ask)
    assert [(it.name, it.sandbox) for it in step.calls] == [("exec_command", SANDBOX), ("own", "")]
    assert step.calls[0].cwd == "src"


def test_a_run_ends_after_its_sandbox_is_closed() -> None:
    before = [starts(), *opened(), answer(1, says("done"))]
    close = only_call(after(*before))
    assert (close.kind, close.sandbox) == ("close", SANDBOX)
    waiting = [*before, asked(close.call, "close")]
    assert isinstance(after(*waiting), Wait)
    result = ends(close.call, msgspec.to_builtins(Checkpointed(tree="t")), kind="close")
    step = after(*waiting, result)
    assert isinstance(step, Finish)
    assert step.done.status == "completed"


@pytest.mark.parametrize("kind", ["close", "checkpoint"])
def test_a_checkpoint_that_fails_does_not_undo_the_run(kind: Any) -> None:
    error = ErrorInfo(code="sandbox.snapshot_persist_error", message="full")
    before = [starts(checkpoint="turn"), *opened()]
    if kind == "close":
        before += [answer(1, says("done"))]
    else:
        before += [answer(1, calls("exec_command", "c1")), asked("t1-0", "tool"), ends("t1-0")]
    call = only_call(after(*before))
    assert call.kind == kind
    failed = CallFinished(call=call.call, kind=kind, turn=1, error=error)
    step = after(*before, asked(call.call, kind), failed)
    assert isinstance(step, Finish if kind == "close" else AskModel)


@pytest.mark.parametrize("use", [{"owned": False, "id": "s-1"}, {"keep": True}])
def test_what_is_not_the_runs_own_is_left_open(use: dict[str, Any]) -> None:
    step = after(starts(**use), *opened(), answer(1, says("done")))
    assert isinstance(step, Finish)


def test_a_sandbox_that_cannot_be_opened_fails_the_run() -> None:
    error = ErrorInfo(code="sandbox.workspace_start_error", message="no space")
    failed = CallFinished(call="t1-open", kind="open", turn=1, error=error)
    step = after(starts(), asked("t1-open", "open"), failed)
    assert isinstance(step, Finish)
    assert step.done.error == error


def test_an_answer_of_the_wrong_shape_fails_the_run() -> None:
    step = after(starts(), asked("t1-open", "open"), ends("t1-open", {"sandbox": 1}, kind="open"))
    assert isinstance(step, Finish)
    assert step.done.error is not None
    assert step.done.error.code == "bad_result"


def test_a_cancelled_run_does_not_wait_for_its_sandbox() -> None:
    events = [starts(), *opened(), CancelRequested(reason="enough")]
    step = after(*events)
    assert isinstance(step, Finish)
    assert step.done.status == "cancelled"
    (close,) = closing_calls(RunState.of(RUN, log(*events)))
    assert (close.kind, close.sandbox) == ("close", SANDBOX)


@pytest.mark.parametrize(("policy", "kind"), [("turn", "checkpoint"), ("end", None)])
def test_each_tool_turn_is_saved_if_so_chosen(policy: Any, kind: str | None) -> None:
    events = [
        starts(checkpoint=policy),
        *opened(),
        answer(1, calls("exec_command", "c1")),
        asked("t1-0", "tool"),
        ends("t1-0"),
    ]
    step = after(*events)
    if kind is None:
        assert isinstance(step, AskModel)
        return
    call = only_call(step)
    assert (call.kind, call.call) == (kind, "t1-checkpoint")
    saved = ends(call.call, msgspec.to_builtins(Checkpointed(tree="t")), kind="checkpoint")
    assert isinstance(after(*events, asked(call.call, "checkpoint"), saved), AskModel)


def test_a_moved_run_asks_the_same_sandbox_again() -> None:
    events = [
        starts(),
        *opened(),
        answer(1, calls("exec_command", "c1")),
        asked("t1-0", "tool"),
        RunMoved(pool="p-2", host="p-2"),
    ]
    call = only_call(after(*events))
    assert (call.call, call.sandbox, call.reply_pool) == ("t1-0", SANDBOX, "p-2")
