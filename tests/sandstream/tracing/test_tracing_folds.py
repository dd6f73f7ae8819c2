"""The fold's promise, kept on logs of real runs: what has ended never changes as a log goes on.

It is what lets spans be exported before their run ends, and replicas finish each other's work.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sandstream_actors.tracing.fold.run_trace import RunTrace
from sandstream_actors.tracing.span import Span
from sandstream_bus.logs.runs import LogEvent
from sandstream_bus.wire.messages import (
    CallRequested,
    ConversationOpened,
    RunMoved,
    RunReopened,
    RunWaiting,
    TurnRequested,
)
from sandstream_bus.wire.subjects import RunId

from sandstream import (
    Agent,
    BusSession,
    Client,
    GuardrailFunctionOutput,
    MaxTurnsExceeded,
    RunConfig,
    Runner,
    RunState,
    function_tool,
    input_guardrail,
    output_guardrail,
)
from sandstream.testing import ScriptedModel, error, script_for, text, tool_call, tool_calls

pytestmark = pytest.mark.usefixtures("home")

MODEL = "gpt-4.1"
SCRIPTS = [
    script_for(
        "all at once",
        [
            error(429, code="rate_limit", message="slow down"),
            tool_calls(
                ("look_up", {"n": 1}), ("look_up", {"n": 2}), ("ask_clerk", {"input": "x1"})
            ),
            tool_call("transfer_to_boss", {}),
            text("All done."),
        ],
    ),
    script_for("x1", [tool_call("look_up", {"n": 3}), text("The clerk is done.")]),
    script_for("pay back", [tool_call("refund", {"amount": 5}), text("Paid."), text("Again.")]),
    script_for("pay nested", [tool_call("ask_clerk", {"input": "x2"}), text("Nested.")]),
    script_for("x2", [tool_call("refund", {"amount": 7}), text("The clerk has paid.")]),
    script_for("fail", [tool_call("break_it", {}), error(400, code="bad", message="no").forever()]),
    script_for("too many turns", [tool_call("look_up", {"n": 9})] * 3),
]


@function_tool
async def look_up(n: int) -> str:
    """Finds an invoice."""
    return f"invoice {n}"


@function_tool(needs_approval=True)
async def refund(amount: int) -> str:
    """Pays back."""
    return f"refunded {amount}"


@function_tool
async def break_it() -> str:
    """Fails, and the model is told."""
    raise ValueError("broken")


@input_guardrail
async def polite(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)


@output_guardrail
async def short(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)


async def play_all() -> list[str]:
    """The ids of runs of many kinds, however they ended."""
    clerk = Agent(name="Clerk", model=MODEL, tools=[look_up, refund])
    boss = Agent(name="Boss", model=MODEL, output_guardrails=[short])
    front = Agent(
        name="Front",
        model=MODEL,
        tools=[look_up, refund, break_it, clerk.as_tool("ask_clerk", "Asks the clerk.")],
        handoffs=[boss],
        input_guardrails=[polite],
    )
    config = RunConfig(workflow_name="folds")
    runs: list[str] = []
    session = BusSession("folds")
    done = await Runner.run(front, "all at once", session=session, run_config=config)
    assert done.final_output == "All done." and done.last_agent is boss
    runs.append(done.run_id)
    for prompt in ("pay back", "pay nested"):
        asked = await Runner.run(front, prompt)
        saved = asked.to_state().to_string()
        if prompt == "pay nested":  # each event loop has a process of its own: the run moves
            await asyncio.to_thread(asyncio.run, answered(front, saved))
            runs.append(asked.run_id)
            continue
        paid = await answered(front, saved)
        runs.append(paid.run_id)
        again = await Runner.run(front, paid.to_state())  # once more after its end
        assert again.final_output == "Again."
    with pytest.raises(Exception, match="no"):
        runs.append((failing := Runner.run_streamed(front, "fail")).run_id)
        [_ async for _ in failing.stream_events()]
    with pytest.raises(MaxTurnsExceeded):
        runs.append((endless := Runner.run_streamed(front, "too many turns", max_turns=2)).run_id)
        [_ async for _ in endless.stream_events()]
    return runs


async def answered(agent: Agent[Any], saved: str) -> Any:
    state = await RunState.from_string(agent, saved)
    for question in state.get_interruptions():
        state.approve(question)
    return await Runner.run(agent, state)


async def logs_of(runs: list[str]) -> dict[str, list[LogEvent]]:
    """Their logs, and those of the runs below them."""
    found: dict[str, list[LogEvent]] = {}
    async with await Client.connect() as client:
        todo = list(runs)
        while todo:
            run = todo.pop()
            found[run] = await client.bus.log.read(RunId(run))
            asked = [it.event for it in found[run] if isinstance(it.event, CallRequested)]
            todo.extend(it.child for it in asked if it.child and it.child not in found)
    return found


def ended(trace: RunTrace) -> dict[str, Span]:
    return {it.span_id: it for it in trace.spans() if not it.is_open}


def test_what_has_ended_never_changes_as_a_log_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")

    async def main() -> dict[str, list[LogEvent]]:
        async with ScriptedModel(conversations=SCRIPTS, strict=False) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            return await logs_of(await play_all())

    logs = asyncio.run(main())
    kinds = {type(it.event) for events in logs.values() for it in events}
    assert {RunWaiting, RunReopened, RunMoved, ConversationOpened, TurnRequested} <= kinds
    assert len(logs) >= 7, "with the runs below them"
    for run, events in logs.items():
        for contents in (False, True):
            whole = ended(RunTrace.of(run, events, contents=contents))
            assert len(whole) > 3
            for count in range(len(events)):
                part = RunTrace.of(run, events[:count], contents=contents)
                for span_id, span in ended(part).items():
                    assert whole[span_id] == span, f"{span.name} after {count} events of {run}"
