"""What a session has of a turn that waits for a person."""

from typing import Any

from comparison.program import MODEL, Probe, program


def both(m: Any) -> list[Any]:
    """A call that waits, between two that do not."""
    calls = [m.tool_call("look", {"n": 1}), m.tool_call("refund", {"amount": 5})]
    return [m.answer("Both.", *calls, m.tool_call("look", {"n": 2})), m.text("Done.")]


def clerk(sdk: Any, **options: Any) -> Any:
    @sdk.function_tool
    def look(n: int) -> str:
        return f"looked {n}"

    @sdk.function_tool(needs_approval=True)
    def refund(amount: int) -> str:
        return f"refunded {amount}"

    return sdk.Agent(**{"name": "Clerk", "model": MODEL, "tools": [look, refund]} | options)


def short(item: Any) -> Any:
    """An item without its ids."""
    return [item.get("type"), item.get("call_id"), item.get("output") or item.get("content")]


async def kept(probe: Probe, session: Any) -> None:
    probe.note([short(item) for item in await session.get_items()])


@program(both)
async def session_of_a_pause_has_what_is_done(sdk: Any, probe: Probe) -> Any:
    session, agent = sdk.SQLiteSession(probe.name), clerk(sdk)
    first = await sdk.Runner.run(agent, probe.input, session=session)
    await kept(probe, session)
    state = first.to_state()
    state.approve(first.interruptions[0])
    result = await sdk.Runner.run(agent, state, session=session)
    await kept(probe, session)
    return result


@program(both)
async def session_of_a_rejection(sdk: Any, probe: Probe) -> Any:
    session, agent = sdk.SQLiteSession(probe.name), clerk(sdk)
    first = await sdk.Runner.run(agent, probe.input, session=session)
    state = first.to_state()
    state.reject(first.interruptions[0])
    result = await sdk.Runner.run(agent, state, session=session)
    await kept(probe, session)
    return result


@program(both)
async def session_of_a_streamed_pause(sdk: Any, probe: Probe) -> Any:
    session, agent = sdk.SQLiteSession(probe.name), clerk(sdk)
    first = sdk.Runner.run_streamed(agent, probe.input, session=session)
    async for _ in first.stream_events():
        pass
    await kept(probe, session)
    state = first.to_state()
    state.approve(first.interruptions[0])
    second = sdk.Runner.run_streamed(agent, state, session=session)
    async for _ in second.stream_events():
        pass
    await kept(probe, session)


@program(
    lambda m: [
        m.tool_calls(("refund", {"amount": 1}), ("look", {"n": 1}), ("refund", {"amount": 2})),
        m.text("Done."),
    ]
)
async def session_of_two_pauses_in_a_turn(sdk: Any, probe: Probe) -> Any:
    session, agent = sdk.SQLiteSession(probe.name), clerk(sdk)
    first = await sdk.Runner.run(agent, probe.input, session=session)
    await kept(probe, session)
    state = first.to_state()
    state.approve(first.interruptions[1])
    second = await sdk.Runner.run(agent, state, session=session)
    await kept(probe, session)
    state = second.to_state()
    state.reject(second.interruptions[0])
    result = await sdk.Runner.run(agent, state, session=session)
    await kept(probe, session)
    return result


@program(lambda m: [m.tool_call("transfer_to_clerk"), *both(m)])
async def session_of_a_pause_after_a_handoff(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    agent = sdk.Agent(name="First", model=MODEL, handoffs=[clerk(sdk)])
    first = await sdk.Runner.run(agent, probe.input, session=session)
    await kept(probe, session)
    state = first.to_state()
    state.approve(first.interruptions[0])
    result = await sdk.Runner.run(agent, state, session=session)
    await kept(probe, session)
    return result


@program(
    lambda m: [
        m.tool_calls(("transfer_to_other", {}), ("look", {"n": 1}), ("refund", {"amount": 5})),
        m.text("Other done."),
    ]
)
async def session_of_a_handoff_beside_a_pause(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    agent = clerk(sdk, handoffs=[sdk.Agent(name="Other", model=MODEL)])
    first = await sdk.Runner.run(agent, probe.input, session=session)
    await kept(probe, session)
    state = first.to_state()
    state.approve(first.interruptions[0])
    result = await sdk.Runner.run(agent, state, session=session)
    await kept(probe, session)
    return result


@program(lambda m: [*both(m), m.text("Later.")])
async def session_of_a_pause_that_is_left(sdk: Any, probe: Probe) -> Any:
    """Nobody answers, and the conversation goes on with another run."""
    session, agent = sdk.SQLiteSession(probe.name), clerk(sdk)
    await sdk.Runner.run(agent, probe.input, session=session)
    result = await sdk.Runner.run(agent, "Never mind.", session=session)
    await kept(probe, session)
    return result.final_output
