"""Sessions and conversations of the server: what is kept, what is sent, what excludes what."""

import json
import sqlite3
from typing import Any

from comparison.program import MODEL, Probe, program


def two_answers(m: Any) -> list[Any]:
    return [m.text("One."), m.text("Two.")]


def call_and_answers(m: Any) -> list[Any]:
    return [m.tool_call("f", {"x": 1}), m.text("One."), m.text("Two.")]


def agent_of(sdk: Any, **options: Any) -> Any:
    return sdk.Agent(**{"name": "Rememberer", "model": MODEL} | options)


def tooled(sdk: Any, **options: Any) -> Any:
    @sdk.function_tool
    def f(x: int) -> str:
        return f"f {x}"

    return agent_of(sdk, tools=[f], **options)


def kinds(items: list[Any]) -> list[Any]:
    return [item.get("type") or item.get("role") for item in items]


@program(two_answers)
async def session_of_two_turns(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    agent = agent_of(sdk)
    first = await sdk.Runner.run(agent, probe.input, session=session)
    probe.note(await session.get_items())
    second = await sdk.Runner.run(agent, "And now?", session=session)
    probe.note(await session.get_items())
    return first, second


@program(two_answers)
async def session_in_a_file(sdk: Any, probe: Probe) -> Any:
    path = probe.folder / "sessions.db"
    agent = agent_of(sdk)
    first = sdk.SQLiteSession("one", path)
    await sdk.Runner.run(agent, probe.input, session=first)
    first.close()
    again = sdk.SQLiteSession("one", path)
    result = await sdk.Runner.run(agent, "And now?", session=again)
    probe.note(
        kinds(await again.get_items()), kinds(await sdk.SQLiteSession("two", path).get_items())
    )
    again.close()
    return result


@program(lambda m: [m.text("One.")])
async def tables_of_a_session(sdk: Any, probe: Probe) -> Any:
    path = probe.folder / "sessions.db"
    session = sdk.SQLiteSession("one", path)
    await sdk.Runner.run(agent_of(sdk), probe.input, session=session)
    session.close()
    with sqlite3.connect(path) as database:
        tables = database.execute(
            "select name from sqlite_master where type = 'table' and name like 'agent%' order by 1"
        ).fetchall()
        probe.note(tables, database.execute("select session_id from agent_sessions").fetchall())
        rows = database.execute("select session_id, message_data from agent_messages order by id")
        probe.note([[session_id, json.loads(data)] for session_id, data in rows])
    database.close()
    return None


@program(call_and_answers)
async def session_with_tools(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    agent = tooled(sdk)
    await sdk.Runner.run(agent, probe.input, session=session)
    probe.note(await session.get_items())
    return await sdk.Runner.run(agent, "And now?", session=session)


@program(call_and_answers)
async def session_of_a_streamed_run(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    agent = tooled(sdk)
    first = sdk.Runner.run_streamed(agent, probe.input, session=session)
    async for event in first.stream_events():
        if event.type == "run_item_stream_event":
            probe.note(event.name)
    probe.note(await session.get_items())
    return sdk.Runner.run_streamed(agent, "And now?", session=session)


@program(lambda m: [m.answer(m.reasoning("Hm."), "One."), m.text("Two.")])
async def session_with_reasoning(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    agent = agent_of(sdk, model="gpt-5.1")
    await sdk.Runner.run(agent, probe.input, session=session)
    probe.note(await session.get_items())
    return await sdk.Runner.run(agent, "And now?", session=session)


@program(lambda m: [m.text("Hello.").forever()])
async def session_limit(sdk: Any, probe: Probe) -> Any:
    settings = sdk.SessionSettings(limit=2)
    session = sdk.SQLiteSession(probe.name, session_settings=settings)
    agent = agent_of(sdk, instructions=f"<{probe.name}>")
    for text in (probe.input, "Second.", "Third."):
        result = await sdk.Runner.run(agent, text, session=session)
    probe.note(kinds(await session.get_items()), kinds(await session.get_items(limit=3)))
    config = sdk.RunConfig(session_settings=sdk.SessionSettings(limit=1))
    return result, await sdk.Runner.run(agent, "Fourth.", session=session, run_config=config)


@program(lambda m: [m.text("One."), m.text("Two.").forever()])
async def session_input_callback(sdk: Any, probe: Probe) -> Any:
    def merge(history: Any, new: Any) -> Any:
        probe.note(kinds(history), new)
        return [*history[-1:], {"role": "user", "content": "By the way:"}, *new]

    session = sdk.SQLiteSession(probe.name)
    agent = agent_of(sdk, instructions=f"<{probe.name}>")
    config = sdk.RunConfig(session_input_callback=merge)
    await sdk.Runner.run(agent, probe.input, session=session, run_config=config)
    result = await sdk.Runner.run(agent, "And now?", session=session, run_config=config)
    probe.note(await session.get_items())
    return result


@program(two_answers)
async def session_input_callback_returns_rubbish(sdk: Any, probe: Probe) -> Any:
    config = sdk.RunConfig(session_input_callback=lambda history, new: "rubbish")
    session = sdk.SQLiteSession(probe.name)
    return await sdk.Runner.run(agent_of(sdk), probe.input, session=session, run_config=config)


@program(two_answers)
async def list_input_with_a_session(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    agent = agent_of(sdk)
    await sdk.Runner.run(agent, probe.input, session=session)
    items = [{"role": "user", "content": "And"}, {"role": "user", "content": "now?"}]
    result = await sdk.Runner.run(agent, items, session=session)
    probe.note(await session.get_items())
    return result


@program(lambda m: [m.tool_call("f", {"x": 1}), m.text("After all.")])
async def session_after_a_failed_tool(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(failure_error_function=None)
    def f(x: int) -> str:
        raise ValueError("no")

    session = sdk.SQLiteSession(probe.name)
    try:
        await sdk.Runner.run(agent_of(sdk, tools=[f]), probe.input, session=session)
    except Exception as error:
        probe.note(type(error).__name__)
    probe.note(kinds(await session.get_items()))
    return None


@program(lambda m: [m.error(400, message="No.").times(1)])
async def session_after_a_failed_model(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    try:
        await sdk.Runner.run(agent_of(sdk), probe.input, session=session)
    except Exception as error:
        probe.note(type(error).__name__)
    probe.note(await session.get_items())
    return None


@program(lambda m: [m.tool_call("f", {"x": 1})])
async def session_after_max_turns(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    try:
        await sdk.Runner.run(tooled(sdk), probe.input, session=session, max_turns=1)
    except Exception as error:
        probe.note(type(error).__name__)
    probe.note(kinds(await session.get_items()))
    return None


@program(lambda m: [])
async def session_after_a_tripped_input_guardrail(sdk: Any, probe: Probe) -> Any:
    @sdk.input_guardrail(run_in_parallel=False)
    def no(ctx: Any, agent: Any, given: Any) -> Any:
        probe.note(given)
        return sdk.GuardrailFunctionOutput(None, tripwire_triggered=True)

    session = sdk.SQLiteSession(probe.name)
    try:
        await sdk.Runner.run(agent_of(sdk, input_guardrails=[no]), probe.input, session=session)
    except Exception as error:
        probe.note(type(error).__name__)
    probe.note(await session.get_items())
    return None


@program(lambda m: [m.tool_call("f", {"x": 1}), m.text("One.")])
async def session_after_a_tripped_output_guardrail(sdk: Any, probe: Probe) -> Any:
    @sdk.output_guardrail
    def no(ctx: Any, agent: Any, output: Any) -> Any:
        return sdk.GuardrailFunctionOutput(None, tripwire_triggered=True)

    session = sdk.SQLiteSession(probe.name)
    try:
        await sdk.Runner.run(tooled(sdk, output_guardrails=[no]), probe.input, session=session)
    except Exception as error:
        probe.note(type(error).__name__)
    probe.note(kinds(await session.get_items()))
    return None


@program(lambda m: [m.tool_call("transfer_to_second"), m.text("One."), m.text("Two.")])
async def session_over_a_handoff(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    second = agent_of(sdk, name="Second")
    agent = agent_of(sdk, handoffs=[second])
    await sdk.Runner.run(agent, probe.input, session=session)
    probe.note(await session.get_items())
    return await sdk.Runner.run(agent, "And now?", session=session)


@program(lambda m: [])
async def session_without_a_run(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    probe.note(session.session_id, await session.get_items(), await session.pop_item())
    await session.add_items([])
    await session.add_items([{"role": "user", "content": str(n)} for n in range(4)])
    probe.note(await session.get_items(limit=2), await session.get_items(limit=0))
    probe.note(await session.pop_item(), len(await session.get_items()))
    await session.clear_session()
    probe.note(await session.get_items())
    return None


@program(lambda m: [m.text("One.")])
async def session_whose_last_turn_is_taken_back(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    agent = agent_of(sdk)
    await sdk.Runner.run(agent, probe.input, session=session)
    await session.pop_item()
    await session.pop_item()
    probe.note(await session.get_items())
    return await sdk.Runner.run(agent, f"{probe.input} Or not.", session=session)


class ListSession:
    """A session of one's own: it is one by its methods."""

    session_settings = None

    def __init__(self, session_id: str, probe: Probe) -> None:
        self.session_id = session_id
        self.items: list[Any] = []
        self.probe = probe

    async def get_items(self, limit: int | None = None) -> list[Any]:
        self.probe.note("get", limit)
        return list(self.items if limit is None else self.items[-limit:])

    async def add_items(self, items: list[Any]) -> None:
        self.probe.note("add", kinds(items))
        self.items.extend(items)

    async def pop_item(self) -> Any:
        self.probe.note("pop")
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        self.items.clear()


@program(call_and_answers)
async def session_of_ones_own(sdk: Any, probe: Probe) -> Any:
    session = ListSession("own", probe)
    agent = tooled(sdk)
    await sdk.Runner.run(agent, probe.input, session=session)
    return await sdk.Runner.run(agent, "And now?", session=session)


@program(lambda m: [])
async def session_that_cannot_be_read(sdk: Any, probe: Probe) -> Any:
    class Broken(ListSession):
        async def get_items(self, limit: int | None = None) -> list[Any]:
            raise OSError("disk gone")

    return await sdk.Runner.run(agent_of(sdk), probe.input, session=Broken("broken", probe))


@program(two_answers)
async def session_and_server_conversations(sdk: Any, probe: Probe) -> Any:
    excluded: list[dict[str, Any]] = [
        {"conversation_id": "conv_1"},
        {"previous_response_id": "resp_1"},
        {"auto_previous_response_id": True},
    ]
    for options in excluded:
        try:
            await sdk.Runner.run(
                agent_of(sdk), probe.input, session=sdk.SQLiteSession(probe.name), **options
            )
            probe.note(sorted(options), "accepted")
        except Exception as error:
            probe.note(sorted(options), type(error).__name__)
    return None


@program(
    lambda m: [
        m.tool_call("refund", {"amount": 5}),
        m.text("Done."),
        m.text("More."),
    ]
)
async def session_with_an_approval(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(needs_approval=True)
    def refund(amount: int) -> str:
        return f"refunded {amount}"

    session = sdk.SQLiteSession(probe.name)
    agent = agent_of(sdk, tools=[refund])
    first = await sdk.Runner.run(agent, probe.input, session=session)
    probe.note(kinds(await session.get_items()))
    state = first.to_state()
    state.approve(first.interruptions[0])
    second = await sdk.Runner.run(agent, state, session=session)
    probe.note(kinds(await session.get_items()))
    return second, await sdk.Runner.run(agent, "And now?", session=session)


@program(
    lambda m: [
        m.text("Never mind.").when("Forget it").forever(),
        m.tool_call("refund", {"amount": 5}),
    ]
)
async def session_with_an_approval_nobody_gave(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool(needs_approval=True)
    def refund(amount: int) -> str:
        return f"refunded {amount}"

    session = sdk.SQLiteSession(probe.name)
    agent = agent_of(sdk, tools=[refund])
    await sdk.Runner.run(agent, probe.input, session=session)
    return await sdk.Runner.run(agent, f"Forget it. <{probe.name}>", session=session)


@program(
    lambda m: [
        m.tool_call("f", {"x": 1}).when("Please do"),
        m.text("One.").when("f 1"),
        m.text("Two.").when("And now?"),
    ]
)
async def conversation_id_of_two_runs(sdk: Any, probe: Probe) -> Any:
    agent = tooled(sdk, instructions=f"<{probe.name}>")
    first = await sdk.Runner.run(agent, probe.input, conversation_id="conv_1")
    return first, await sdk.Runner.run(agent, "And now?", conversation_id="conv_1")


@program(call_and_answers)
async def previous_response_id_of_two_runs(sdk: Any, probe: Probe) -> Any:
    agent = tooled(sdk)
    first = await sdk.Runner.run(agent, probe.input, auto_previous_response_id=True)
    second = await sdk.Runner.run(agent, "And now?", previous_response_id=first.last_response_id)
    return first, second


@program(call_and_answers)
async def streamed_previous_response_id(sdk: Any, probe: Probe) -> Any:
    agent = tooled(sdk)
    first = sdk.Runner.run_streamed(agent, probe.input, auto_previous_response_id=True)
    async for _ in first.stream_events():
        pass
    return sdk.Runner.run_streamed(agent, "And now?", previous_response_id=first.last_response_id)


@program(
    lambda m: [
        m.tool_calls(("f", {"x": 1}), ("f", {"x": 2})),
        m.tool_call("f", {"x": 3}),
        m.text("One."),
    ]
)
async def deltas_of_several_turns(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(tooled(sdk), probe.input, auto_previous_response_id=True)


@program(lambda m: [m.tool_call("f", {"x": 1}), m.text("Done.")])
async def session_of_a_cancelled_run(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    result = sdk.Runner.run_streamed(tooled(sdk), probe.input, session=session)
    async for event in result.stream_events():
        if event.type == "run_item_stream_event" and event.name == "tool_called":
            result.cancel(mode="after_turn")
    probe.note(kinds(await session.get_items()))
    return None


@program(
    lambda m: [
        m.tool_call("f", {"x": 1}),
        m.tool_call("transfer_to_second"),
        m.tool_call("f", {"x": 2}),
        m.text("One."),
    ]
)
async def deltas_over_a_handoff(sdk: Any, probe: Probe) -> Any:
    second = tooled(sdk, name="Second")
    agent = tooled(sdk, handoffs=[second])
    return await sdk.Runner.run(agent, probe.input, auto_previous_response_id=True)


@program(lambda m: [m.tool_call("f", {"x": 1})])
async def session_and_an_error_handler(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    result = await sdk.Runner.run(
        tooled(sdk),
        probe.input,
        session=session,
        max_turns=1,
        error_handlers={"max_turns": lambda data: "Enough."},
    )
    probe.note(await session.get_items())
    return result


@program(call_and_answers)
async def session_that_stops_on_a_tool(sdk: Any, probe: Probe) -> Any:
    session = sdk.SQLiteSession(probe.name)
    agent = tooled(sdk, tool_use_behavior="stop_on_first_tool")
    await sdk.Runner.run(agent, probe.input, session=session)
    probe.note(kinds(await session.get_items()))
    return await sdk.Runner.run(agent, "And now?", session=session)
