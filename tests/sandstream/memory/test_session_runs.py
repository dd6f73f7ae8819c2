"""Sessions of the user's own in runs: what a model reads of them, and what they have afterwards."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sandstream_actors.run.state import RunState
from sandstream_actors.run.state_cache import StateCache
from sandstream_actors.tool_host.actor import TakenCall
from sandstream_bus.wire.messages import RunMoved
from sandstream_bus.wire.subjects import RunId
from support.scripted_log import answer, asks, begin, calls, ends, log

from sandstream import (
    Agent,
    BusSession,
    MaxTurnsExceeded,
    RunConfig,
    RunContextWrapper,
    Runner,
    SessionSettings,
    SQLiteSession,
    UserError,
    function_tool,
)
from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.sessions import history, save
from sandstream.guardrail import GuardrailFunctionOutput, input_guardrail
from sandstream.sandbox import SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Shell
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import ScriptedModel, Step, error, text, tool_call

Item = dict[str, Any]
on_a_server = pytest.mark.usefixtures("home")


@function_tool
def double(x: int) -> str:
    """Double it."""
    return str(2 * x)


AGENT: Agent[Any] = Agent(name="rememberer", model="gpt-4.1", tools=[double])


def play(
    steps: list[Step],
    program: Callable[[ScriptedModel], Awaitable[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            await program(model)

    asyncio.run(main())


def kinds(items: list[Item]) -> list[str]:
    return [item.get("type") or item["role"] for item in items]


def texts(items: list[Item]) -> list[str]:
    return [re.sub(r"\s+", " ", _text(item)) for item in items]


def _text(item: Item) -> str:
    content = item.get("content", "")
    return content if isinstance(content, str) else content[0]["text"]


def inputs(model: ScriptedModel) -> list[list[str]]:
    return [kinds(sent(model, number)) for number in range(len(model.requests))]


def sent(model: ScriptedModel, number: int) -> list[Item]:
    items: Any = model.requests[number]["input"]
    return list(items)


class ListSession:
    """A session by its methods only; it notes what it is asked."""

    session_id = "own"
    session_settings: SessionSettings | None = None

    def __init__(self, items: list[Item] | None = None) -> None:
        self.items = list(items or [])
        self.notes: list[str] = []

    async def get_items(self, limit: int | None = None) -> list[Item]:
        self.notes.append("get")
        return list(self.items if limit is None else self.items[-limit:])

    async def add_items(self, items: list[Item]) -> None:
        self.notes.append(f"add {len(items)}")
        self.items.extend(items)

    async def pop_item(self) -> Item | None:
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        self.items.clear()


class KnowingSession(ListSession):
    """One that wants to know for whom it works."""

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[Item]:
        assert wrapper is not None
        self.notes.append(f"get for {wrapper.context}")
        return list(self.items)

    async def add_items(
        self, items: list[Item], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        assert wrapper is not None
        self.notes.append(f"add for {wrapper.context}")
        self.items.extend(items)

    async def pop_item(self, *, wrapper: RunContextWrapper[Any] | None = None) -> Item | None:
        return None

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        self.items.clear()


class FullSession(ListSession):
    async def add_items(self, items: list[Item]) -> None:
        raise OSError("disk gone")


class BareSession:
    """No more than what a run needs."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def get_items(self) -> list[Item]:
        return self.items

    def add_items(self, items: list[Item]) -> None:
        self.items = [*self.items, *items]


# --- runs -----------------------------------------------------------------------------------------


@on_a_server
@pytest.mark.parametrize("in_file", [False, True])
def test_two_runs_with_tools(
    in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program(model: ScriptedModel) -> None:
        path = tmp_path / "sessions.db" if in_file else ":memory:"
        session = SQLiteSession("s", path)
        first = await Runner.run(AGENT, "Double 4", session=session)
        assert first.input == [{"content": "Double 4", "role": "user"}]
        if in_file:  # nothing of it is in this object
            session.close()
            session = SQLiteSession("s", path)
        second = await Runner.run(AGENT, "And now?", session=session)
        one_run = ["user", "function_call", "function_call_output", "message"]
        assert inputs(model) == [["user"], one_run[:-1], [*one_run, "user"]]
        assert kinds(await session.get_items()) == [*one_run, "user", "message"]
        assert second.to_input_list() == await session.get_items()
        session.close()

    steps = [tool_call("double", {"x": 4}), text("It is 8."), text("Still 8.")]
    play(steps, program, monkeypatch)


@on_a_server
def test_a_streamed_run_has_stored_all_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(_: ScriptedModel) -> None:
        session = ListSession()
        result = Runner.run_streamed(AGENT, "Double 4", session=session)
        names = [getattr(it, "name", "") async for it in result.stream_events()]
        happened = ["tool_called", "tool_output", "message_output_created"]
        assert list(filter(None, names)) == happened
        assert session.notes == ["get", "add 1", "add 2", "add 1"]
        assert session.items == result.to_input_list()

    play([tool_call("double", {"x": 4}), text("8")], program, monkeypatch)


@on_a_server
def test_a_window_on_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        session = SQLiteSession("s", session_settings=SessionSettings(limit=2))
        await Runner.run(AGENT, "Double 4", session=session)
        # the window begins between a call and its output
        await Runner.run(AGENT, "And now?", session=session)
        config = RunConfig(session_settings=SessionSettings(limit=1))
        await Runner.run(AGENT, "And then?", session=session, run_config=config)
        assert inputs(model)[2:] == [["message", "user"], ["message", "user"]]
        session.close()

    steps = [tool_call("double", {"x": 4}), text("8"), text("Still 8."), text("8.")]
    play(steps, program, monkeypatch)


@on_a_server
def test_a_callback_decides_what_the_model_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    def merge(history: list[Item], new: list[Item]) -> list[Item]:
        return [*new, *history[:1], {"role": "user", "content": "by the way"}]

    async def program(model: ScriptedModel) -> None:
        session = ListSession([{"role": "user", "content": f"old {n}"} for n in (1, 2)])
        config = RunConfig(session_input_callback=merge)
        result = await Runner.run(AGENT, "new", session=session, run_config=config)
        seen = ["new", "old 1", "by the way"]
        assert texts(sent(model, 0)) == seen
        assert texts(result.input) == seen  # type: ignore[arg-type]
        # only what is new is kept, wherever the callback put it
        assert texts(session.items) == ["old 1", "old 2", "new", "by the way", "ok"]

    play([text("ok")], program, monkeypatch)


@on_a_server
def test_a_session_that_wants_the_context_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(_: ScriptedModel) -> None:
        session = KnowingSession()
        await Runner.run(AGENT, "hi", session=session, context="Ada")
        assert session.notes == ["get for Ada", "add for Ada", "add for Ada"]

    play([text("ok")], program, monkeypatch)


@on_a_server
def test_a_session_needs_only_what_a_run_does_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        session: Any = BareSession()
        await Runner.run(AGENT, "hi", session=session)
        await Runner.run(AGENT, "and now", session=session)
        assert texts(session.items) == ["hi", "ok", "and now", "ok"]
        assert texts(sent(model, 1)) == ["hi", "ok", "and now"]

    play([text("ok").times(2)], program, monkeypatch)


@on_a_server
def test_what_a_run_that_ends_badly_leaves_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    @input_guardrail(run_in_parallel=False)
    def never(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    async def program(_: ScriptedModel) -> None:
        refused = ListSession()
        with pytest.raises(Exception, match="tripwire"):
            guarded: Agent[Any] = Agent(name="g", model="gpt-4.1", input_guardrails=[never])
            await Runner.run(guarded, "bad", session=refused)
        assert texts(refused.items) == ["bad"]

        failed = ListSession()
        with pytest.raises(Exception, match="No"):
            await Runner.run(AGENT, "fails", session=failed)
        assert texts(failed.items) == ["fails"]

        stopped = ListSession()
        with pytest.raises(MaxTurnsExceeded):
            await Runner.run(AGENT, "loops", session=stopped, max_turns=1)
        assert kinds(stopped.items) == ["user", "function_call", "function_call_output"]

        with pytest.raises(OSError, match="disk gone"):
            await Runner.run(AGENT, "hi", session=FullSession())

    steps = [
        error(400, message="No.").when("fails"),
        tool_call("double", {"x": 1}).when("loops"),
    ]
    play(steps, program, monkeypatch)


@on_a_server
def test_a_run_that_is_stopped_after_its_turn_has_stored_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def program(_: ScriptedModel) -> None:
        session = ListSession()
        result = Runner.run_streamed(AGENT, "Double 4", session=session)
        async for event in result.stream_events():
            if getattr(event, "name", "") == "tool_called":
                result.cancel(mode="after_turn")
        assert kinds(session.items) == ["user", "function_call", "function_call_output"]

    play([tool_call("double", {"x": 4})], program, monkeypatch)


def test_a_session_excludes_conversations_of_the_server() -> None:
    excluded: list[dict[str, Any]] = [
        {"conversation_id": "conv_1"},
        {"previous_response_id": "resp_1"},
        {"auto_previous_response_id": True},
    ]
    for options in excluded:
        for session in (ListSession(), BusSession("s")):
            with pytest.raises(UserError, match="session"):
                asyncio.run(Runner.run(AGENT, "hi", session=session, **options))
    with pytest.raises(UserError, match="must be a Session"):
        asyncio.run(Runner.run(AGENT, "hi", session="s"))  # type: ignore[arg-type]


@on_a_server
def test_a_live_sandbox_goes_with_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        client = UnixLocalSandboxClient()
        coder: SandboxAgent[Any] = SandboxAgent(
            name="coder", model="gpt-4.1", capabilities=[Shell()]
        )
        session = ListSession()
        async with await client.create() as sandbox:
            config = RunConfig(sandbox=SandboxRunConfig(session=sandbox))
            await Runner.run(coder, "Write it", session=session, run_config=config)
            await Runner.run(coder, "Read it", session=session, run_config=config)
        outputs = [it for it in session.items if it.get("type") == "function_call_output"]
        assert "seven" in outputs[1]["output"]
        turn = ["user", "function_call", "function_call_output", "message"]
        assert kinds(session.items) == [*turn, *turn]
        assert inputs(model)[-1] == [*turn, *turn[:-1]]

    steps = [
        tool_call("exec_command", {"cmd": "echo seven > n"}),
        text("Written."),
        tool_call("exec_command", {"cmd": "cat n"}),
        text("Seven."),
    ]
    play(steps, program, monkeypatch)


# --- one write for one call -----------------------------------------------------------------------


def hosted(session: Any) -> HostedRun:
    return HostedRun({}, RunContextWrapper(None), RunConfig(), session=session)


def state_of(*events: Any) -> RunState:
    from sandstream_bus.wire.specs import SessionUse

    start = begin("f", options={"session": SessionUse(id="own", kind="host", merges=True)})
    return RunState.of(RunId("r"), log(start, *events))


def ask_save(turn: int, again: bool = False) -> TakenCall:
    return TakenCall(
        call=f"t{turn}-save", kind="save", turn=turn, agent="a", reply_pool="main", again=again
    )


def saved(session: Any, call: TakenCall, *events: Any) -> None:
    states: StateCache = None  # type: ignore[assignment]
    asyncio.run(save(hosted(session), state_of(*events, call), call, states))


FIRST = (asks("t0-save", "save", 0), ends("t0-save", None, kind="save", turn=0))
TURN = (*FIRST, answer(1, calls("f", "c0")), asks("t1-0"), ends("t1-0"))


def test_a_write_that_may_have_been_made_is_looked_for() -> None:
    session = ListSession()
    saved(session, ask_save(0))
    saved(session, ask_save(0, again=True))
    assert session.notes == ["add 1", "get"]
    saved(session, ask_save(1), *TURN)
    saved(session, ask_save(1, again=True), *TURN)
    saved(session, ask_save(1), *TURN, RunMoved(pool="p", host="h"))
    assert session.notes[2:] == ["add 2", "get", "get"]
    assert kinds(session.items) == ["user", "function_call", "function_call_output"]


def test_a_write_before_a_pause_is_looked_for_as_well() -> None:
    session = ListSession()
    paused = msgspec.structs.replace(ask_save(1), name="paused")
    half = (*FIRST, answer(1, calls("f", "c0"), calls("f", "c1")), asks("t1-0"), ends("t1-0"))
    saved(session, paused, *half)
    assert kinds(session.items) == ["function_call", "function_call", "function_call_output"]
    saved(session, msgspec.structs.replace(paused, again=True), *half)
    assert session.notes == ["add 3", "get"]


def test_a_write_that_was_not_made_is_made() -> None:
    session = ListSession([{"role": "user", "content": "something else"}])
    saved(session, ask_save(0, again=True))
    saved(session, ask_save(1, again=True), *TURN)
    assert kinds(session.items)[1:] == ["user", "function_call", "function_call_output"]


def test_what_is_said_while_a_write_is_under_way_is_for_the_next_one() -> None:
    session = ListSession()
    asked = ask_save(1)
    before = (*FIRST, answer(1, calls("f", "c0")), asks("t1-0"), asked)
    state = state_of(*before, ends("t1-0"))
    asyncio.run(save(hosted(session), state, asked, None))  # type: ignore[arg-type]
    assert kinds(session.items) == ["function_call"]
    state = state_of(*before, ends("t1-0"), ends("t1-save", None, kind="save"))
    assert state.next_save() == "t1-save1"
    assert state.session_has == 1


def test_a_process_without_the_session_says_so() -> None:
    call = TakenCall(call="t0-history", kind="history", turn=0, agent="a", reply_pool="main")
    with pytest.raises(UserError, match="pass the same session"):
        asyncio.run(history(hosted(None), state_of(), call, None))  # type: ignore[arg-type]
