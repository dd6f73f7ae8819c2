"""What an output guardrail refused is not in a conversation on the bus, nor shown to callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sandstream import (
    Agent,
    BusSession,
    GuardrailFunctionOutput,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    function_tool,
    output_guardrail,
)
from sandstream.testing import ScriptedModel, Step, text, tool_call

pytestmark = pytest.mark.usefixtures("home")


@function_tool
def secret() -> str:
    """Tell it."""
    return "hunter2"


@output_guardrail
def no_secrets(ctx: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput("it said hunter2", tripwire_triggered="hunter2" in str(output))


def bot(**more: Any) -> Agent[Any]:
    return Agent(
        name="bot", model="gpt-4.1", tools=[secret], output_guardrails=[no_secrets], **more
    )


@asynccontextmanager
async def scripted(
    steps: list[Step], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel(steps) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        yield server


async def refused(agent: Agent[Any], session: str, config: RunConfig | None = None) -> Exception:
    with pytest.raises(OutputGuardrailTripwireTriggered) as caught:
        await Runner.run(agent, "Tell me.", session=BusSession(session), run_config=config)
    return caught.value


def test_a_refused_answer_is_not_part_of_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with scripted([text("It is hunter2."), text("No.")], monkeypatch) as server:
            await refused(bot(), "refused-answer")
            result = await Runner.run(bot(), "Again.", session=BusSession("refused-answer"))
            assert result.final_output == "No."
            sent: Any = server.requests[-1]["input"]
            said = [it["content"] for it in sent]
            assert said == ["Tell me.", "Again."]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        (None, "Output withheld by an output guardrail."),
        ("Nothing to see.", "Nothing to see."),
        (lambda about: f"Refused by {about.guardrail_name}.", "Refused by no_secrets."),
        (lambda about: about.no_such_field, "Output withheld by an output guardrail."),
    ],
)
def test_a_call_stays_without_what_it_said(
    message: str | Callable[[Any], str] | None, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = f"refused-call-{kept}-{callable(message)}".replace(" ", "-").replace(".", "")

    async def main() -> None:
        async with scripted([tool_call("secret"), text("No.")], monkeypatch) as server:
            config = RunConfig(output_guardrail_blocked_message=message)
            ended = bot(tool_use_behavior="stop_on_first_tool")
            error: Any = await refused(ended, session, config)
            await Runner.run(bot(), "Again.", session=BusSession(session))
            sent: Any = server.requests[-1]["input"]
            asked, call, output, again = sent
            assert (asked["content"], call["name"]) == ("Tell me.", "secret")
            assert (output["output"], again["content"]) == (kept, "Again.")
            shown = [it.output for it in error.run_data.new_items if hasattr(it, "output")]
            assert shown == [kept]
            assert error.guardrail_result.agent_output == kept
            assert error.guardrail_result.output.output_info is None
            assert "hunter2" not in str(error.run_data.new_items)

    asyncio.run(main())
