"""What a guardrail beside the model call can still prevent: one that objects at once costs no call.

Here and there the guardrails begin first. What they say at once is heard before a request is sent.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from comparison.program import MODEL, Probe, program


def never_asked(m: Any) -> list[Any]:
    return [m.text("Never asked for.")]


async def at_once() -> None:
    pass


async def after_a_step() -> None:
    await asyncio.sleep(0)


async def fails() -> None:
    raise ValueError("cannot check")


def refuses(sdk: Any, when: Callable[[], Awaitable[None]]) -> Any:
    async def refuse(ctx: Any, agent: Any, given: Any) -> Any:
        await when()
        return sdk.GuardrailFunctionOutput("no", tripwire_triggered=True)

    return sdk.input_guardrail(name="no")(refuse)


def guarded(sdk: Any, *guardrails: Any, **options: Any) -> Any:
    defaults = {"name": "Guarded", "model": MODEL, "input_guardrails": list(guardrails)}
    return sdk.Agent(**defaults | options)


@program(never_asked)
async def parallel_guardrail_trips_at_once(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(guarded(sdk, refuses(sdk, at_once)), probe.input)


@program(never_asked)
async def parallel_guardrail_of_a_plain_function_trips(sdk: Any, probe: Probe) -> Any:
    @sdk.input_guardrail
    def refuse(ctx: Any, agent: Any, given: Any) -> Any:
        return sdk.GuardrailFunctionOutput("no", tripwire_triggered=True)

    return await sdk.Runner.run(guarded(sdk, refuse), probe.input)


@program(never_asked)
async def parallel_guardrail_trips_after_a_step(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(guarded(sdk, refuses(sdk, after_a_step)), probe.input)


@program(never_asked)
async def one_of_two_parallel_guardrails_trips_at_once(sdk: Any, probe: Probe) -> Any:
    async def wait(ctx: Any, agent: Any, given: Any) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            probe.note("cancelled")
            raise

    slow = sdk.input_guardrail(name="slow")(wait)
    return await sdk.Runner.run(guarded(sdk, slow, refuses(sdk, at_once)), probe.input)


@program(never_asked)
async def parallel_guardrail_raises_at_once(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(guarded(sdk, refuses(sdk, fails)), probe.input)


@program(never_asked)
async def parallel_guardrail_beside_a_model_object(sdk: Any, probe: Probe) -> Any:
    import openai

    model = sdk.OpenAIResponsesModel(MODEL, openai.AsyncOpenAI())
    return await sdk.Runner.run(guarded(sdk, refuses(sdk, at_once), model=model), probe.input)


@program(never_asked)
async def parallel_guardrail_trips_at_once_in_a_session(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    try:
        await sdk.Runner.run(guarded(sdk, refuses(sdk, at_once)), probe.input, session=session)
    except sdk.InputGuardrailTripwireTriggered as error:
        probe.note(type(error).__name__)
    return await session.get_items()


@program(never_asked)
async def parallel_guardrail_trips_before_hooks(sdk: Any, probe: Probe) -> Any:
    class Watching(sdk.RunHooks):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            probe.note("agent start")

        async def on_llm_start(self, context: Any, agent: Any, prompt: Any, given: Any) -> None:
            probe.note("llm start")

    def instructions(ctx: Any, agent: Any) -> str:
        probe.note("instructions")
        return "Never read."

    agent = guarded(sdk, refuses(sdk, at_once), instructions=instructions)
    return await sdk.Runner.run(agent, probe.input, hooks=Watching())
