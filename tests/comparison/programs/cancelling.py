"""Streamed runs that are cancelled before anything has happened; streams that are read twice."""

from typing import Any

from comparison.program import MODEL, Probe, program


def two_turns(m: Any) -> list[Any]:
    return [m.tool_call("f"), m.text("Done.")]


def tooled(sdk: Any, probe: Probe, **options: Any) -> Any:
    @sdk.function_tool(**options)
    def f() -> str:
        probe.note("f")
        return "f"

    return sdk.Agent(name="A", model=MODEL, tools=[f])


async def rest_of(probe: Probe, result: Any) -> None:
    """Notes what is seen of the rest of the run."""
    events = [event.type async for event in result.stream_events()]
    probe.note([event for event in events if event != "raw_response_event"])
    probe.note(result.is_complete, result.final_output, result.run_loop_exception)
    probe.note([item.type for item in result.new_items], len(result.raw_responses))
    probe.note(result.current_turn, result.last_agent.name)


@program(two_turns)
async def cancel_at_once(sdk: Any, probe: Probe) -> Any:
    result = sdk.Runner.run_streamed(tooled(sdk, probe), probe.input)
    result.cancel()
    await rest_of(probe, result)


@program(two_turns)
async def cancel_after_the_turn_at_once(sdk: Any, probe: Probe) -> Any:
    result = sdk.Runner.run_streamed(tooled(sdk, probe), probe.input)
    result.cancel(mode="after_turn")
    await rest_of(probe, result)


@program(two_turns)
async def cancel_after_the_turn_and_at_once(sdk: Any, probe: Probe) -> Any:
    result = sdk.Runner.run_streamed(tooled(sdk, probe), probe.input)
    result.cancel(mode="after_turn")
    result.cancel()
    result.cancel()
    await rest_of(probe, result)


@program(two_turns)
async def cancel_at_once_with_hooks_and_a_session(sdk: Any, probe: Probe) -> Any:
    class Watching(sdk.RunHooks):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            probe.note("agent start")

    session = sdk.SQLiteSession(probe.name)
    agent = tooled(sdk, probe)
    result = sdk.Runner.run_streamed(agent, probe.input, session=session, hooks=Watching())
    result.cancel()
    await rest_of(probe, result)
    return await session.get_items()


@program(two_turns)
async def cancel_the_resumption_at_once(sdk: Any, probe: Probe) -> Any:
    agent = tooled(sdk, probe, needs_approval=True)
    first = await sdk.Runner.run(agent, probe.input)
    state = first.to_state()
    state.approve(first.interruptions[0])
    result = sdk.Runner.run_streamed(agent, state)
    result.cancel()
    await rest_of(probe, result)


@program(two_turns)
async def stream_is_read_twice(sdk: Any, probe: Probe) -> Any:
    result = sdk.Runner.run_streamed(tooled(sdk, probe), probe.input)
    await rest_of(probe, result)
    await rest_of(probe, result)


@program(lambda m: [m.tool_call("unknown")])
async def failed_stream_is_read_twice(sdk: Any, probe: Probe) -> Any:
    result = sdk.Runner.run_streamed(tooled(sdk, probe), probe.input)
    for _ in range(2):
        try:
            async for _event in result.stream_events():
                pass
        except sdk.ModelBehaviorError:
            probe.note("raised")
