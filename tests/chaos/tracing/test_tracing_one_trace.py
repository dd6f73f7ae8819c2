"""One trace for a run with a handoff, twenty child runs, a sandbox and an approval, across all
processes that took part: caller, harness, worker, sandbox actor.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from chaos.sandbox.fleet import remove_boxes
from chaos.tracing.fleet import TracingFleet
from sandstream_actors.tracing.span import Span
from sandstream_actors.tracing.store.queries import TraceReader
from support.tracing.otlp_receiver import OtlpReceiver
from support.waiting import eventually

from sandstream.testing import ScriptedModel, script_for, text, tool_calls

pytestmark = pytest.mark.timeout(120)

KEY = "order-17"
CHILDREN = 20


def scripted() -> ScriptedModel:
    ask = [("ask_leaf", {"input": f"[leaf-{number:02}]"}) for number in range(CHILDREN)]
    command = {"cmd": "echo forged > sword; cat sword", "yield_time_ms": 30_000}
    chief = script_for(
        "[everything]",
        [
            tool_calls(*ask),
            tool_calls(("transfer_to_smith", {})),
            tool_calls(("exec_command", command)),
            tool_calls(("refund", {"cents": 300})),
            text("All is done."),
        ],
        name="everything",
    )
    leaves = [
        script_for(
            f"[leaf-{number:02}]",
            [tool_calls(("look_up", {"what": f"thing {number}"})), text(f"leaf {number}")],
            name=f"leaf-{number:02}",
        )
        for number in range(CHILDREN)
    ]
    return ScriptedModel(conversations=[chief, *leaves], strict=False)


def test_one_trace_over_all_processes(tmp_path: Path) -> None:
    async def main(model_url: str, receiver: OtlpReceiver) -> tuple[str, str, list[Span]]:
        directory = tmp_path / "fleet"
        async with TracingFleet(directory, model_url) as fleet:
            try:
                return await play(fleet, receiver)
            finally:
                await asyncio.gather(*(it.kill() for it in fleet.programs))
                await remove_boxes(directory / "node-a")

    async def play(fleet: TracingFleet, receiver: OtlpReceiver) -> tuple[str, str, list[Span]]:
        for name, *arguments in (
            ("actor", "harness"),
            ("traced_company",),
            ("sandbox_actor", "a", "60"),
        ):
            await (await fleet.program(name, *arguments)).ready()
        await fleet.tracer(receiver)
        caller = await fleet.program("traced_caller", "chief", KEY, "[everything]")
        trace_id, parent_id = (await caller.line()).split()
        assert await caller.wait(10) == 0
        await fleet.approve_all(KEY)
        assert await fleet.all_done([KEY], 60) == []
        reader = await TraceReader.open_to_read(fleet.store("traces"))
        assert reader is not None

        async def is_reported() -> bool:
            """Programs report their own spans in batches, some of them after the run's end."""
            spans = await reader.spans_of_trace(trace_id)
            return sum(it.name == "read the shelf" for it in spans) == CHILDREN

        try:
            await eventually(is_reported, within_s=20, what="all own spans are told")
            await fleet.settled("traces")
            return trace_id, parent_id, await reader.spans_of_trace(trace_id)
        finally:
            await reader.close()

    with scripted() as model, OtlpReceiver() as receiver:
        trace_id, parent_id, spans = asyncio.run(main(model.base_url, receiver))
    ids = {span.span_id for span in spans}
    roots = [span for span in spans if span.parent_id not in ids]
    assert [(span.name, span.parent_id) for span in roots] == [("Order", "")]
    assert {span.trace_id for span in receiver.spans} == {trace_id}
    assert {span.span_id for span in receiver.spans} == ids
    assert len(receiver.spans) == len(spans)
    names = Counter(span.name for span in spans)
    assert names["invoke_agent leaf"] == CHILDREN
    assert names["execute_tool ask_leaf"] == CHILDREN
    assert names["execute_tool look_up"] == names["read the shelf"] == CHILDREN
    for name in ("invoke_agent chief", "invoke_agent smith", "handoff chief to smith"):
        assert names[name] == 1, name
    for name in ("approval refund", "execute_tool refund", "execute_tool exec_command"):
        assert names[name] == 1, name
    assert names["sandbox.open"] == 2, "once more after the wait for a person"
    by_id = {span.span_id: span for span in spans}
    (chief,) = [span for span in spans if span.name == "invoke_agent chief"]
    assert chief.parent_id == parent_id
    assert by_id[parent_id].name == "hand it in"
    for span in spans:
        if span.name == "invoke_agent leaf":
            assert by_id[span.parent_id].name == "execute_tool ask_leaf"
        if span.name == "read the shelf":
            assert by_id[span.parent_id].name == "execute_tool look_up"
