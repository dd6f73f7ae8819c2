"""Runs whose agents have the tools of real MCP servers: called here, and deployed."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest
from sandstream_bus.wire.messages import CallFinished, RunWaiting
from support.hosted_programs import MODEL, deployed, play
from support.mcp.programs import odd_server
from support.model_requests import input_of

from sandstream import (
    Agent,
    RunConfig,
    RunContextWrapper,
    Runner,
    ToolGuardrailFunctionOutput,
    UserError,
    function_tool,
    tool_output_guardrail,
)
from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.tools.mcp import listed_tool
from sandstream.items import ModelResponse
from sandstream.mcp import MCPServer, MCPServerStdio
from sandstream.models.interface import Model
from sandstream.testing import ScriptedModel, text, tool_call
from sandstream.usage import Usage

pytestmark = pytest.mark.usefixtures("home")

CALL = [tool_call("only"), text("Done.")]
SAID: Any = [{"type": "input_text", "text": "as text"}]


def connected(*servers: MCPServer, **options: Any) -> Agent[Any]:
    return Agent(name="A", model=MODEL, mcp_servers=list(servers), **options)


def offered(request: Any) -> list[str]:
    return [tool["name"] for tool in request["tools"]]


def test_tools_are_listed_each_turn_and_called(monkeypatch: pytest.MonkeyPatch) -> None:
    @function_tool
    def own() -> str:
        return "own"

    async def program(model: ScriptedModel) -> None:
        async with odd_server("counting") as server:
            result = await Runner.run(connected(server, tools=[own]), "hi")
            assert result.final_output == "Done."
        first, second = model.requests
        assert offered(first) == ["asked_1", "own"]
        assert offered(second) == ["asked_2", "own"]
        assert input_of(second)[-1]["output"] == SAID

    play(monkeypatch, [tool_call("asked_1"), text("Done.")], program)


def test_a_streamed_run_lists_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        async with odd_server() as server:
            result = Runner.run_streamed(connected(server), "hi")
            names = [
                event.name
                async for event in result.stream_events()
                if event.type == "run_item_stream_event"
            ]
        assert names == ["tool_called", "tool_output", "message_output_created"]

    play(monkeypatch, CALL, program)


def test_names_with_the_server_avoid_the_agents_own(monkeypatch: pytest.MonkeyPatch) -> None:
    @function_tool
    def only() -> str:
        raise AssertionError("the server's was called")

    config: Any = {"include_server_in_tool_names": True}

    async def program(model: ScriptedModel) -> None:
        async with odd_server(name="my server") as server:
            await Runner.run(connected(server, tools=[only], mcp_config=config), "hi")
        assert offered(model.requests[0]) == ["mcp_my_server__only", "only"]
        assert input_of(model.requests[1])[-1]["output"] == SAID

    play(monkeypatch, [tool_call("mcp_my_server__only"), text("Done.")], program)


def test_a_name_that_is_taken_is_the_agents_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @function_tool
    def only() -> str:
        return "own"

    async def program(model: ScriptedModel) -> None:
        async with odd_server() as server:
            agent = connected(server, tools=[only])
            with caplog.at_level(logging.WARNING):
                await Runner.run(agent, "hi")
            assert input_of(model.requests[1])[-1]["output"] == "own"
            assert offered(model.requests[0]) == ["only"]
            config = RunConfig(tool_name_collision_policy="error")
            with pytest.raises(UserError, match="both have 'only'"):
                await Runner.run(agent, "hi", run_config=config)

    play(monkeypatch, CALL, program)
    assert "both have 'only'" in caplog.text


def test_two_servers_with_one_name_fail_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        async with odd_server() as one, odd_server(name="other") as other:
            with pytest.raises(UserError, match="Duplicate tool names"):
                await Runner.run(connected(one, other), "hi")

    play(monkeypatch, [], program)


def test_a_server_that_is_not_connected_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(model: ScriptedModel) -> None:
        with pytest.raises(UserError, match="connect"):
            await Runner.run(connected(odd_server()), "hi")

    play(monkeypatch, [], program)


def test_guardrails_of_a_server_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    @tool_output_guardrail
    def withhold(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("Withheld.")

    async def program(model: ScriptedModel) -> None:
        async with odd_server(tool_output_guardrails=[withhold]) as server:
            await Runner.run(connected(server), "hi")
        assert input_of(model.requests[1])[-1]["output"] == "Withheld."

    play(monkeypatch, CALL, program)


def test_a_function_decides_about_approval(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def decide(ctx: Any, agent: Any, tool: Any) -> bool:
        asked.append(tool.name)
        return False

    async def program(model: ScriptedModel) -> None:
        async with odd_server(require_approval=decide) as server:
            result = await Runner.run(connected(server), "hi")
        assert result.final_output == "Done." and asked == ["only"]

    play(monkeypatch, CALL, program)


class Calling(Model):
    """A model object that calls a tool of a server, once."""

    def __init__(self) -> None:
        self.tools: list[list[str]] = []

    async def get_response(
        self,
        system_instructions: Any,
        input: Any,
        model_settings: Any,
        tools: Any,
        *rest: Any,
        **named: Any,
    ) -> ModelResponse:
        self.tools.append([tool.name for tool in tools])
        done = any(item.get("type") == "function_call_output" for item in input)
        call = {
            "type": "function_call",
            "call_id": "c1",
            "name": "only",
            "arguments": "{}",
        }
        said = {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Done."}],
        }
        return ModelResponse([said if done else call], Usage(requests=1), None)

    def stream_response(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError


def test_a_model_object_gets_the_listed_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    calling = Calling()

    async def program(model: ScriptedModel) -> None:
        async with odd_server() as server:
            agent = Agent(name="A", model=calling, mcp_servers=[server])
            result = await Runner.run(agent, "hi")
        assert result.final_output == "Done."
        assert calling.tools == [["only"], ["only"]]

    play(monkeypatch, [], program)


# --- workers --------------------------------------------------------------------------------------


def test_a_worker_connects_its_servers_and_closes_them() -> None:
    server = odd_server()

    async def main() -> None:
        async with deployed("mcp", connected(server), CALL) as (client, _):
            run = await client.submit("A", "hi")
            assert (await client.wait(run)).status == "completed"
            finished = [e.event for e in await client.events(run)]
            called = [it for it in finished if isinstance(it, CallFinished) and it.kind == "tool"]
            assert [msgspec.json.decode(it.output) for it in called] == [SAID]
        with pytest.raises(UserError, match="connect"):
            await server.list_tools()

    asyncio.run(main())


def test_a_server_that_does_not_start_fails_the_runs_that_need_it() -> None:
    broken = MCPServerStdio({"command": "/no/such/command"}, name="broken")

    async def main() -> None:
        async with deployed("mcpbroken", connected(broken), []) as (client, _):
            done = await client.wait(await client.submit("A", "hi"))
            assert done.error is not None
            assert "MCP server 'broken' is not connected" in done.error.message

    asyncio.run(main())


def test_a_call_waits_for_a_person() -> None:
    async def main() -> None:
        agent = connected(odd_server(require_approval="always"))
        async with deployed("mcpwait", agent, CALL[:1]) as (client, _):
            run = await client.submit("A", "hi")
            async for event in client.follow(run):
                waiting = getattr(event, "event", None)
                if isinstance(waiting, RunWaiting):
                    assert [it.name for it in waiting.approvals] == ["only"]
                    break
            await client.cancel(run)

    asyncio.run(main())


def test_a_process_that_did_not_list_the_tools_does_so_for_a_call() -> None:
    async def main() -> None:
        async with odd_server() as server:
            agent = connected(server)
            hosted = HostedRun({"A": agent}, RunContextWrapper(None), RunConfig())
            assert hosted.tool("A", "only") is None
            found = await listed_tool(hosted, "A", "only")
            assert found is not None and found.name == "only"
            assert await listed_tool(hosted, "A", "unknown") is None

    asyncio.run(main())
