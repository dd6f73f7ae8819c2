"""Guardrails of agents: when they run, what a tripped one ends, what results and errors hold."""

import asyncio
from typing import Any

from comparison.program import MODEL, Probe, program
from comparison.programs.outputs import Event


def answer(m: Any) -> list[Any]:
    return [m.text("Hello.")]


def nothing(m: Any) -> list[Any]:
    return []


def checks(sdk: Any, probe: Probe, name: str, *, trips: bool = False, **options: Any) -> Any:
    """An input guardrail that notes what it is asked."""

    async def check(ctx: Any, agent: Any, given: Any) -> Any:
        probe.note(name, agent.name, given, ctx.context)
        return sdk.GuardrailFunctionOutput(output_info={"by": name}, tripwire_triggered=trips)

    return sdk.input_guardrail(name=name, **options)(check)


def judges(sdk: Any, probe: Probe, name: str, *, trips: bool = False) -> Any:
    """An output guardrail that notes what it is asked."""

    def judge(ctx: Any, agent: Any, output: Any) -> Any:
        probe.note(name, agent.name, output, ctx.usage.requests)
        return sdk.GuardrailFunctionOutput(output_info=[name], tripwire_triggered=trips)

    return sdk.output_guardrail(name=name)(judge)


def guarded(sdk: Any, *input_guardrails: Any, **options: Any) -> Any:
    defaults = {"name": "Guarded", "model": MODEL, "input_guardrails": list(input_guardrails)}
    return sdk.Agent(**defaults | options)


@program(answer)
async def input_guardrail_passes(sdk: Any, probe: Probe) -> Any:
    agent = guarded(sdk, checks(sdk, probe, "one"))
    return await sdk.Runner.run(agent, probe.input, context="ctx")


@program(answer)
async def input_guardrails_blocking_and_parallel(sdk: Any, probe: Probe) -> Any:
    parallel = checks(sdk, probe, "parallel")
    blocking = checks(sdk, probe, "blocking", run_in_parallel=False)
    return await sdk.Runner.run(guarded(sdk, parallel, blocking), probe.input)


@program(nothing)
async def blocking_guardrail_trips(sdk: Any, probe: Probe) -> Any:
    trips = checks(sdk, probe, "no", trips=True, run_in_parallel=False)
    return await sdk.Runner.run(guarded(sdk, trips), probe.input)


@program(nothing)
async def blocking_guardrail_trips_in_a_streamed_run(sdk: Any, probe: Probe) -> Any:
    trips = checks(sdk, probe, "no", trips=True, run_in_parallel=False)
    return sdk.Runner.run_streamed(guarded(sdk, trips), probe.input)


@program(nothing)
async def first_tripped_guardrail_cancels_the_others(sdk: Any, probe: Probe) -> Any:
    waiting = asyncio.Event()

    @sdk.input_guardrail(run_in_parallel=False)
    async def waits(ctx: Any, agent: Any, given: Any) -> Any:
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            probe.note("cancelled")
            raise

    @sdk.input_guardrail(run_in_parallel=False)
    async def trips(ctx: Any, agent: Any, given: Any) -> Any:
        await waiting.wait()
        return sdk.GuardrailFunctionOutput(None, tripwire_triggered=True)

    return await sdk.Runner.run(guarded(sdk, waits, trips), probe.input)


@program(lambda m: [m.tool_call("f"), m.text("Never asked for.")])
async def parallel_guardrail_trips_after_a_tool_ran(sdk: Any, probe: Probe) -> Any:
    ran = asyncio.Event()

    @sdk.function_tool
    async def f() -> str:
        probe.note("f")
        ran.set()
        return "f"

    @sdk.input_guardrail
    async def late(ctx: Any, agent: Any, given: Any) -> Any:
        await ran.wait()
        return sdk.GuardrailFunctionOutput("late", tripwire_triggered=True)

    return await sdk.Runner.run(guarded(sdk, late, tools=[f]), probe.input)


def tells_when_it_ends(sdk: Any, ended: asyncio.Event) -> Any:
    class Ending(sdk.AgentHooks):
        async def on_end(self, context: Any, agent: Any, output: Any) -> None:
            ended.set()

    return Ending()


@program(answer)
async def parallel_guardrail_trips_at_the_end(sdk: Any, probe: Probe) -> Any:
    ended = asyncio.Event()

    @sdk.input_guardrail
    async def late(ctx: Any, agent: Any, given: Any) -> Any:
        await ended.wait()
        return sdk.GuardrailFunctionOutput("late", tripwire_triggered=True)

    agent = guarded(sdk, late, hooks=tells_when_it_ends(sdk, ended))
    return await sdk.Runner.run(agent, probe.input)


@program(answer)
async def parallel_guardrail_trips_at_the_end_of_a_streamed_run(sdk: Any, probe: Probe) -> Any:
    ended = asyncio.Event()

    @sdk.input_guardrail
    async def late(ctx: Any, agent: Any, given: Any) -> Any:
        await ended.wait()
        return sdk.GuardrailFunctionOutput("late", tripwire_triggered=True)

    agent = guarded(sdk, late, hooks=tells_when_it_ends(sdk, ended))
    result = sdk.Runner.run_streamed(agent, probe.input)
    try:
        async for _ in result.stream_events():
            pass
    except sdk.InputGuardrailTripwireTriggered as error:
        probe.note(error)
    return [one.guardrail.get_name() for one in result.input_guardrail_results]


@program(nothing)
async def guardrail_raises(sdk: Any, probe: Probe) -> Any:
    @sdk.input_guardrail(run_in_parallel=False)
    def fails(ctx: Any, agent: Any, given: Any) -> Any:
        raise ValueError("cannot check")

    return await sdk.Runner.run(guarded(sdk, fails), probe.input)


@program(answer)
async def guardrails_of_the_run_config(sdk: Any, probe: Probe) -> Any:
    config = sdk.RunConfig(
        input_guardrails=[checks(sdk, probe, "run's", run_in_parallel=False)],
        output_guardrails=[judges(sdk, probe, "run's judge")],
    )
    own = checks(sdk, probe, "own", run_in_parallel=False)
    agent = guarded(sdk, own, output_guardrails=[judges(sdk, probe, "own judge")])
    return await sdk.Runner.run(agent, probe.input, run_config=config)


@program(answer)
async def guardrail_objects(sdk: Any, probe: Probe) -> Any:
    def look(ctx: Any, agent: Any, given: Any) -> Any:
        probe.note(given)
        return sdk.GuardrailFunctionOutput(None, tripwire_triggered=False)

    before = sdk.InputGuardrail(guardrail_function=look)
    after = sdk.OutputGuardrail(guardrail_function=look, name="named")
    probe.note(before.get_name(), before.run_in_parallel, after.get_name())
    return await sdk.Runner.run(guarded(sdk, before, output_guardrails=[after]), probe.input)


@program(answer)
async def guardrail_sees_list_input(sdk: Any, probe: Probe) -> Any:
    items = [{"role": "user", "content": probe.input}]
    return await sdk.Runner.run(guarded(sdk, checks(sdk, probe, "one")), items)


@program(lambda m: [m.tool_call("transfer_to_second"), m.text("Second.")])
async def guardrails_and_handoffs(sdk: Any, probe: Probe) -> Any:
    second = guarded(
        sdk,
        checks(sdk, probe, "second"),
        name="Second",
        output_guardrails=[judges(sdk, probe, "second's judge")],
    )
    first = guarded(
        sdk,
        checks(sdk, probe, "first", run_in_parallel=False),
        handoffs=[second],
        output_guardrails=[judges(sdk, probe, "first's judge")],
    )
    return await sdk.Runner.run(first, probe.input)


@program(lambda m: [m.tool_call("f"), m.text("Hello.")])
async def input_guardrails_run_once(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    agent = guarded(sdk, checks(sdk, probe, "one", run_in_parallel=False), tools=[f])
    return sdk.Runner.run_streamed(agent, probe.input)


@program(answer)
async def output_guardrail_passes(sdk: Any, probe: Probe) -> Any:
    agent = guarded(sdk, output_guardrails=[judges(sdk, probe, "one"), judges(sdk, probe, "two")])
    return await sdk.Runner.run(agent, probe.input)


@program(answer)
async def output_guardrail_trips(sdk: Any, probe: Probe) -> Any:
    trips = judges(sdk, probe, "no", trips=True)
    return await sdk.Runner.run(guarded(sdk, output_guardrails=[trips]), probe.input)


@program(answer)
async def output_guardrail_trips_in_a_streamed_run(sdk: Any, probe: Probe) -> Any:
    trips = judges(sdk, probe, "no", trips=True)
    return sdk.Runner.run_streamed(guarded(sdk, output_guardrails=[trips]), probe.input)


@program(answer)
async def output_guardrail_raises(sdk: Any, probe: Probe) -> Any:
    @sdk.output_guardrail
    async def fails(ctx: Any, agent: Any, output: Any) -> Any:
        raise ValueError("cannot judge")

    return await sdk.Runner.run(guarded(sdk, output_guardrails=[fails]), probe.input)


@program(lambda m: [m.structured({"name": "Fair", "guests": [], "color": "red"})])
async def output_guardrail_of_a_typed_agent(sdk: Any, probe: Probe) -> Any:
    judge = judges(sdk, probe, "typed")
    return await sdk.Runner.run(
        guarded(sdk, output_type=Event, output_guardrails=[judge]), probe.input
    )


@program(lambda m: [m.tool_call("f")])
async def output_guardrail_trips_on_what_a_tool_said(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "a secret"

    agent = guarded(
        sdk,
        tools=[f],
        tool_use_behavior="stop_on_first_tool",
        output_guardrails=[judges(sdk, probe, "no", trips=True)],
    )
    session = sdk.SQLiteSession(probe.name)
    try:
        await sdk.Runner.run(agent, probe.input, session=session)
    except sdk.OutputGuardrailTripwireTriggered as error:
        probe.note(error)
    return await session.get_items()


@program(lambda m: [m.tool_call("f")])
async def blocked_message_of_the_run_config(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "a secret"

    agent = guarded(
        sdk,
        tools=[f],
        tool_use_behavior="stop_on_first_tool",
        output_guardrails=[judges(sdk, probe, "no", trips=True)],
    )
    session = sdk.SQLiteSession(probe.name)
    config = sdk.RunConfig(output_guardrail_blocked_message="Nothing to see.")
    try:
        await sdk.Runner.run(agent, probe.input, session=session, run_config=config)
    except sdk.OutputGuardrailTripwireTriggered as error:
        probe.note(type(error).__name__)
    return await session.get_items()


@program(lambda m: [m.answer("Let me see.", m.tool_call("f"), m.tool_call("g"))])
async def blocked_message_by_a_function(sdk: Any, probe: Probe) -> Any:
    """In a streamed run, of two tools and a message beside them."""

    @sdk.function_tool
    def f() -> str:
        return "a secret"

    @sdk.function_tool
    def g() -> str:
        return "another secret"

    def message(about: Any) -> str:
        probe.note(about.default_message, about.guardrail_name, about.agent.name)
        return f"Refused by {about.guardrail_name}."

    agent = guarded(
        sdk,
        tools=[f, g],
        tool_use_behavior={"stop_at_tool_names": ["g"]},
        output_guardrails=[judges(sdk, probe, "no", trips=True)],
    )
    session = sdk.SQLiteSession(probe.name)
    config = sdk.RunConfig(output_guardrail_blocked_message=message)
    result = sdk.Runner.run_streamed(agent, probe.input, session=session, run_config=config)
    try:
        async for _ in result.stream_events():
            pass
    except sdk.OutputGuardrailTripwireTriggered as error:
        probe.note(type(error).__name__, error.guardrail_result.agent_output)
    return await session.get_items()


@program(lambda m: [m.answer(m.reasoning("Hm."), m.tool_call("f"))])
async def refused_output_after_reasoning(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "a secret"

    agent = guarded(
        sdk,
        tools=[f],
        tool_use_behavior="stop_on_first_tool",
        output_guardrails=[judges(sdk, probe, "no", trips=True)],
    )
    session = sdk.SQLiteSession(probe.name)
    try:
        await sdk.Runner.run(agent, probe.input, session=session)
    except sdk.OutputGuardrailTripwireTriggered as error:
        probe.note(type(error).__name__)
    return await session.get_items()


@program(lambda m: [m.tool_call("f"), m.text("A secret.")])
async def refused_answer_is_not_in_the_session(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    trips = judges(sdk, probe, "no", trips=True)
    session = sdk.SQLiteSession(probe.name)
    try:
        await sdk.Runner.run(
            guarded(sdk, tools=[f], output_guardrails=[trips]), probe.input, session=session
        )
    except sdk.OutputGuardrailTripwireTriggered as error:
        probe.note(type(error).__name__)
    return await session.get_items()


@program(answer)
async def answer_that_could_not_be_judged_is_in_the_session(sdk: Any, probe: Probe) -> Any:
    @sdk.output_guardrail
    async def fails(ctx: Any, agent: Any, output: Any) -> Any:
        raise ValueError("cannot judge")

    session = sdk.SQLiteSession(probe.name)
    try:
        await sdk.Runner.run(guarded(sdk, output_guardrails=[fails]), probe.input, session=session)
    except ValueError as error:
        probe.note(error)
    return await session.get_items()


@program(answer)
async def blocked_messages_that_are_none(sdk: Any, probe: Probe) -> Any:
    async def later(about: Any) -> str:
        return "later"

    for value in ("", 3, later):
        try:
            sdk.RunConfig(output_guardrail_blocked_message=value)
        except (TypeError, ValueError) as error:
            probe.note(type(error).__name__)


@program(lambda m: [m.text("Hello.")])
async def output_guardrail_with_previous_response_id(sdk: Any, probe: Probe) -> Any:
    agent = guarded(sdk, output_guardrails=[judges(sdk, probe, "one")])
    return await sdk.Runner.run(agent, probe.input, auto_previous_response_id=True)


@program(lambda m: [m.tool_call("f")])
async def output_guardrail_of_a_handlers_output(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    agent = guarded(sdk, tools=[f], output_guardrails=[judges(sdk, probe, "one")])
    return await sdk.Runner.run(
        agent, probe.input, max_turns=1, error_handlers={"max_turns": lambda data: "Enough."}
    )


@program(answer)
async def guardrail_returns_rubbish(sdk: Any, probe: Probe) -> Any:
    @sdk.input_guardrail(run_in_parallel=False)
    def rubbish(ctx: Any, agent: Any, given: Any) -> Any:
        return "rubbish"

    return await sdk.Runner.run(guarded(sdk, rubbish), probe.input)
