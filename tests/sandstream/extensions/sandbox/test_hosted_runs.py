"""Agents with sandboxes at a vendor: streaming, several turns, handoffs, agents as tools."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel
from support.vendor_side import VendorSide, outputs, run_command

from sandstream import Agent, Runner, handoff
from sandstream.run import RunConfig
from sandstream.sandbox import SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Shell
from sandstream.sandbox.entries import File
from sandstream.testing import (
    ScriptedModel,
    Step,
    script_for,
    structured,
    text,
    tool_call,
    tool_calls,
)

TEMPERATURES = File(content=b"town,degrees\nOslo,-4\nCairo,31\nAlta,-11\n")
COLDEST = "sort -t, -k2 -n data/towns.csv | grep , | head -n 1 | tee coldest.txt"


def towns_agent(vendor: VendorSide, **more: Any) -> SandboxAgent[Any]:
    settings: dict[str, Any] = {
        "name": "Meteorologist",
        "model": "gpt-5.4",
        "instructions": "Compute with the shell.",
        "default_manifest": vendor.manifest(**{"data/towns.csv": TEMPERATURES}),
        "capabilities": [Shell()],
    }
    return SandboxAgent(**(settings | more))


def play(monkeypatch: pytest.MonkeyPatch, program: Any, *steps: Step, **scripts: Any) -> Any:
    async def main() -> Any:
        async with ScriptedModel(list(steps), **scripts) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            return await program(model)

    return asyncio.run(main())


def test_an_agent_with_a_shell_is_watched_as_it_works(
    vendor: VendorSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program(model: ScriptedModel) -> None:
        client = vendor.client()
        run_config = RunConfig(sandbox=SandboxRunConfig(client=client, options=vendor.options()))
        result = Runner.run_streamed(
            towns_agent(vendor), "Which town is coldest?", run_config=run_config
        )
        said, called, told = "", [], []
        async for event in result.stream_events():
            if event.type == "raw_response_event" and isinstance(
                event.data, ResponseTextDeltaEvent
            ):
                said += event.data.delta
            elif event.type == "run_item_stream_event":
                raw: Any = event.item.raw_item
                if event.name == "tool_called":
                    called.append((raw.name, json.loads(raw.arguments)))
                elif event.name == "tool_output":
                    told.append(event.item.output[-40:])  # type: ignore[union-attr]
        await client.close()
        assert said == result.final_output == "Alta, at eleven below zero."
        assert called == [
            ("exec_command", {"cmd": "cat data/towns.csv"}),
            ("exec_command", {"cmd": COLDEST}),
        ]
        assert told[0].endswith("Alta,-11\n") and told[1].endswith("Output:\nAlta,-11\n")

    since = len(vendor.server.journal())
    play(
        monkeypatch,
        program,
        run_command("cat data/towns.csv"),
        run_command(COLDEST),
        text("Alta, at eleven below zero.").chunks(4),
    )
    assert vendor.created(since) == 1


def test_several_turns_in_one_sandbox(vendor: VendorSide, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = ["Which town is coldest?", "And what did you write down?"]

    async def program(model: ScriptedModel) -> None:
        client = vendor.client()
        agent = towns_agent(vendor)
        session = await client.create(manifest=agent.default_manifest, options=vendor.options())
        await session.start()
        run_config = RunConfig(sandbox=SandboxRunConfig(session=session))
        conversation: list[Any] = []
        answers = []
        for question in questions:
            input_items = [*conversation, {"role": "user", "content": question}]
            result = Runner.run_streamed(agent, input_items, run_config=run_config)
            said = ""
            async for event in result.stream_events():
                if event.type == "raw_response_event" and isinstance(
                    event.data, ResponseTextDeltaEvent
                ):
                    said += event.data.delta
            answers.append(said)
            conversation = result.to_input_list()
        assert answers == ["Alta.", "Alta and its temperature."]
        assert outputs(result)[-1].endswith("Output:\nAlta,-11\n"), "the file of the first turn"
        assert questions[0] in model.journal[-1].text and "Alta." in model.journal[-1].text
        (box,) = vendor.boxes()
        assert session.state.sandbox_id == box.id
        await session.aclose()
        await client.close()

    since = len(vendor.server.journal())
    play(
        monkeypatch,
        program,
        run_command(COLDEST),
        text("Alta."),
        run_command("cat coldest.txt"),
        text("Alta and its temperature."),
    )
    assert vendor.created(since) == 1


def test_an_agent_with_a_sandbox_hands_off_to_one_without(
    vendor: VendorSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program(model: ScriptedModel) -> None:
        writer = Agent(name="Letter Writer", model="gpt-5.4", instructions="Write a short letter.")
        client = vendor.client()
        result = await Runner.run(
            towns_agent(vendor, handoffs=[writer]),
            "Write to our guests which town is coldest.",
            run_config=RunConfig(sandbox=SandboxRunConfig(client=client, options=vendor.options())),
        )
        await client.close()
        assert result.final_output == "Dear guests, take coats to Alta."
        assert result.last_agent.name == "Letter Writer"
        tools = [[it["name"] for it in each.body.get("tools") or ()] for each in model.journal]
        assert "exec_command" in tools[0] and "exec_command" not in tools[-1]
        assert "Alta,-11" in model.journal[-1].text, "the writer reads what was found"

    play(
        monkeypatch,
        program,
        run_command(COLDEST),
        tool_call("transfer_to_letter_writer", {}),
        text("Dear guests, take coats to Alta."),
    )


def test_handoffs_in_a_circle_return_to_the_same_sandbox(
    vendor: VendorSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program(model: ScriptedModel) -> None:
        writer = Agent(name="Letter Writer", model="gpt-5.4", instructions="Write a short letter.")
        meteorologist = towns_agent(vendor)
        writer.handoffs = [handoff(meteorologist)]
        meteorologist.handoffs = [handoff(writer)]
        client = vendor.client()
        result = await Runner.run(
            meteorologist,
            "Write to our guests which town is coldest.",
            run_config=RunConfig(sandbox=SandboxRunConfig(client=client, options=vendor.options())),
        )
        await client.close()
        assert result.final_output == "It is Alta, as I wrote down."
        assert result.last_agent.name == "Meteorologist"
        assert outputs(result)[-1].endswith("Output:\nAlta,-11\n")

    since = len(vendor.server.journal())
    play(
        monkeypatch,
        program,
        run_command(COLDEST),
        tool_call("transfer_to_letter_writer", {}),
        tool_call("transfer_to_meteorologist", {}),
        run_command("cat coldest.txt"),
        text("It is Alta, as I wrote down."),
    )
    assert vendor.created(since) == 1


class PriceReview(BaseModel):
    risk: str
    summary: str


class PlanReview(BaseModel):
    risk: str
    blockers: list[str]


async def as_json(result: Any) -> str:
    return json.dumps(result.final_output.model_dump(mode="json"), sort_keys=True)


def test_sandbox_agents_as_tools_work_at_once_in_boxes_of_their_own(
    vendor: VendorSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each reviewer waits until the other one's box exists too, as the vendor counts them.
    both = asyncio.Event()

    async def program(model: ScriptedModel) -> None:
        client = vendor.client()
        reviewers = {
            "price": towns_agent(
                vendor,
                name="Price Reviewer",
                default_manifest=vendor.manifest(**{"price.md": File(content=b"40 % off\n")}),
                output_type=PriceReview,
            ),
            "plan": towns_agent(
                vendor,
                name="Plan Reviewer",
                default_manifest=vendor.manifest(**{"plan.md": File(content=b"no tests\n")}),
                output_type=PlanReview,
            ),
        }
        desk = Agent(
            name="Desk",
            instructions="Have both reviewed.",
            tools=[
                agent.as_tool(
                    tool_name=f"review_{paper}",
                    tool_description=f"Review the {paper}.",
                    custom_output_extractor=as_json,
                    run_config=RunConfig(
                        sandbox=SandboxRunConfig(client=client, options=vendor.options())
                    ),
                )
                for paper, agent in reviewers.items()
            ],
        )

        async def watch() -> None:
            while len(await asyncio.to_thread(vendor.boxes)) < 2:
                await asyncio.sleep(0.01)
            both.set()

        watching = asyncio.create_task(watch())
        result = await Runner.run(desk, "Should we sign?")
        await client.close()
        await watching
        assert result.final_output == "Not yet."
        assert [json.loads(it) for it in outputs(result)] == [
            {"risk": "high", "summary": "too cheap"},
            {"risk": "medium", "blockers": ["no tests"]},
        ]
        seen = "".join(it.text for it in model.journal if "Should we sign" in it.text)
        assert "40 % off" not in seen, "the caller sees answers, not files"

    reviews = [
        script_for(
            "Check the price",
            [
                run_command("ls; cat price.md; sleep 2"),
                structured({"risk": "high", "summary": "too cheap"}),
            ],
        ),
        script_for(
            "Check the plan",
            [
                run_command("ls; cat plan.md; sleep 2"),
                structured({"risk": "medium", "blockers": ["no tests"]}),
            ],
        ),
        script_for(
            "Should we sign",
            [
                tool_calls(
                    ("review_price", {"input": "Check the price."}),
                    ("review_plan", {"input": "Check the plan."}),
                ),
                text("Not yet."),
            ],
        ),
    ]
    since = len(vendor.server.journal())
    play(monkeypatch, program, conversations=reviews)
    assert both.is_set() and vendor.created(since) == 2
