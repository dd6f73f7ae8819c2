"""Exceptions that cannot be shown: their text raises, is no Unicode, or they are no `Exception`."""

from typing import Any

from comparison.program import MODEL, Probe, program


class Unspeakable(Exception):
    """Neither `str` nor `repr` can say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Odd(BaseException):
    """No `Exception`, and nobody who ends a program either."""


def one_call(m: Any) -> list[Any]:
    return [m.tool_call("f"), m.text("Done.")]


def one_answer(m: Any) -> list[Any]:
    return [m.text("Done.")]


async def seen(sdk: Any, probe: Probe, agent: Any, **options: Any) -> Any:
    """The result, or a note of what was raised. It has no text that a report could show."""
    try:
        return await sdk.Runner.run(agent, probe.input, **options)
    except (Unspeakable, Odd, ExceptionGroup) as error:
        probe.note(type(error).__name__)


@program(one_call)
async def tool_raises_what_has_no_text(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        raise Unspeakable

    return await seen(sdk, probe, sdk.Agent(name="A", model=MODEL, tools=[f]))


@program(one_call)
async def tool_raises_a_text_that_is_no_unicode(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(failure_error_function=None)
    def f() -> str:
        raise ValueError("half of a \ud83d")

    try:
        await sdk.Runner.run(sdk.Agent(name="A", model=MODEL, tools=[f]), probe.input)
    except sdk.UserError as error:
        probe.note(str(error).encode(errors="backslashreplace").decode())


@program(one_call)
async def tool_raises_a_huge_text(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        raise ValueError("x" * 3_000_000)

    return await seen(sdk, probe, sdk.Agent(name="A", model=MODEL, tools=[f]))


@program(one_call)
async def tool_raises_a_base_exception(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        raise Odd

    return await seen(sdk, probe, sdk.Agent(name="A", model=MODEL, tools=[f]))


@program(one_answer)
async def guardrail_raises_what_has_no_text(sdk: Any, probe: Probe) -> Any:
    @sdk.input_guardrail(run_in_parallel=False)
    def fails(ctx: Any, agent: Any, given: Any) -> Any:
        raise Unspeakable

    return await seen(sdk, probe, sdk.Agent(name="A", model=MODEL, input_guardrails=[fails]))


@program(one_answer)
async def output_guardrail_raises_a_group(sdk: Any, probe: Probe) -> Any:
    @sdk.output_guardrail
    def fails(ctx: Any, agent: Any, output: Any) -> Any:
        raise ExceptionGroup("several", [Unspeakable(), ValueError("one")])

    return await seen(sdk, probe, sdk.Agent(name="A", model=MODEL, output_guardrails=[fails]))


@program(one_answer)
async def instructions_raise_what_has_no_text(sdk: Any, probe: Probe) -> Any:
    def instructions(ctx: Any, agent: Any) -> str:
        raise Unspeakable

    return await seen(sdk, probe, sdk.Agent(name="A", model=MODEL, instructions=instructions))


@program(one_answer)
async def hook_raises_what_has_no_text(sdk: Any, probe: Probe) -> Any:
    class Failing(sdk.RunHooks):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            raise Unspeakable

    return await seen(sdk, probe, sdk.Agent(name="A", model=MODEL), hooks=Failing())


@program(one_answer)
async def error_handler_raises_what_has_no_text(sdk: Any, probe: Probe) -> Any:
    def handler(data: Any) -> str:
        raise Unspeakable

    agent = sdk.Agent(name="A", model=MODEL)
    return await seen(sdk, probe, agent, max_turns=0, error_handlers={"max_turns": handler})


@program(one_answer)
async def session_raises_what_has_no_text(sdk: Any, probe: Probe) -> Any:
    class Failing(sdk.SQLiteSession):
        async def get_items(self, limit: Any = None) -> Any:
            raise Unspeakable

    agent = sdk.Agent(name="A", model=MODEL)
    return await seen(sdk, probe, agent, session=Failing(probe.name))


@program(one_answer)
async def session_cannot_keep_and_has_no_text(sdk: Any, probe: Probe) -> Any:
    class Failing(sdk.SQLiteSession):
        async def add_items(self, items: Any) -> None:
            raise Odd

    agent = sdk.Agent(name="A", model=MODEL)
    return await seen(sdk, probe, agent, session=Failing(probe.name))


@program(one_answer)
async def model_provider_raises_what_has_no_text(sdk: Any, probe: Probe) -> Any:
    class Failing(sdk.ModelProvider):
        def get_model(self, name: Any) -> Any:
            raise Unspeakable

    config = sdk.RunConfig(model_provider=Failing())
    return await seen(sdk, probe, sdk.Agent(name="A", model=MODEL), run_config=config)


@program(one_answer)
async def verdict_of_a_guardrail_has_no_text(sdk: Any, probe: Probe) -> Any:
    @sdk.input_guardrail(run_in_parallel=False)
    def refuses(ctx: Any, agent: Any, given: Any) -> Any:
        return sdk.GuardrailFunctionOutput(Unspeakable(), tripwire_triggered=True)

    try:
        await sdk.Runner.run(
            sdk.Agent(name="A", model=MODEL, input_guardrails=[refuses]), probe.input
        )
    except sdk.InputGuardrailTripwireTriggered as error:
        probe.note(type(error.guardrail_result.output.output_info).__name__)
