"""Tools of real servers as function tools: schemas, results, failures, names."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.mcp.programs import (
    AGENT,
    RUN,
    context,
    http_program,
    http_server,
    invoke,
    odd_server,
    tool_server,
    tools_of,
)

from sandstream.exceptions import UserError
from sandstream.items import ToolOrigin, ToolOriginType
from sandstream.mcp import (
    MCPServer,
    MCPServerSse,
    MCPToolCancellationError,
    MCPToolCustomDataContext,
    MCPToolMetaContext,
    MCPUtil,
    ToolFilterContext,
    create_static_tool_filter,
)
from sandstream.mcp.connection import Connection
from sandstream.tool import FunctionTool, FunctionToolCustomDataContext, tool_output_to_wire

DEFAULT_ERROR = "An error occurred while running the tool. Please try again."


async def _results(server: MCPServer) -> dict[str, Any]:
    tools = await tools_of(server)
    calls = {
        "add": '{"a": 1, "b": 2}',
        "echo": '{"text": "hi"}',
        "picture": "{}",
        "sound": "{}",
        "nothing": "",
    }
    return {name: await invoke(tools[name], arguments) for name, arguments in calls.items()}


def _check_results(results: dict[str, Any]) -> None:
    assert results["add"] == {"type": "text", "text": "3"}
    assert results["echo"] == {"type": "text", "text": "hi"}
    image, text = results["picture"]
    assert image["type"] == "image" and image["image_url"].startswith("data:image/png;base64,")
    assert text == {"type": "text", "text": "a pixel"}
    sound = json.loads(results["sound"]["text"])
    assert (sound["type"], sound["data"]) == ("audio", "UklGRg==")
    assert results["nothing"] == []
    assert tool_output_to_wire(results["picture"])[0]["type"] == "input_image"  # type: ignore[index]


def test_results_over_stdio() -> None:
    async def scenario() -> dict[str, Any]:
        async with tool_server() as server:
            return await _results(server)

    _check_results(asyncio.run(scenario()))


def test_results_over_streamable_http() -> None:
    async def scenario(server: MCPServer) -> dict[str, Any]:
        await server.connect()
        try:
            return await _results(server)
        finally:
            await server.cleanup()

    with http_program("http") as running:
        server = http_server(running)
        assert server.name == f"streamable_http: {running.url}/mcp"
        _check_results(asyncio.run(scenario(server)))


def test_results_over_sse() -> None:
    async def scenario(server: MCPServerSse) -> dict[str, Any]:
        async with server:
            return await _results(server)

    with http_program("sse") as running:
        _check_results(asyncio.run(scenario(MCPServerSse({"url": f"{running.url}/sse"}))))


def test_a_tool_is_described_to_the_model() -> None:
    async def scenario() -> dict[str, FunctionTool]:
        async with tool_server() as server:
            return await tools_of(server)

    tools = asyncio.run(scenario())
    add = tools["add"]
    assert add.description == "Add two numbers."
    assert add.params_json_schema["properties"].keys() == {"a", "b"}
    assert add.strict_json_schema is False
    assert add.needs_approval is False
    assert add.tool_origin == ToolOrigin(ToolOriginType.MCP, mcp_server_name="tools")
    assert tools["echo"].description == "Say it again", "a title stands in for a description"
    assert tools["echo"].title == "Say it again"


def test_failures_of_a_call() -> None:
    async def scenario() -> dict[str, Any]:
        async with tool_server() as server:
            tools = await tools_of(server)
            return {
                "raises": await invoke(tools["fail"], '{"reason": "x"}'),
                "missing": await invoke(tools["add"], '{"a": 1}'),
                "no object": await invoke(tools["add"], "[1]"),
                "no JSON": await invoke(tools["add"], "{bad"),
                "direct": await tools["add"].on_invoke_tool(context(tools["add"]), "{bad"),
                "unknown": await server.call_tool("nowhere", {}),
            }

    results = asyncio.run(scenario())
    assert "fail" in results["raises"]["text"], "the model gets what the server says"
    assert results["missing"] == results["no object"] == results["no JSON"] == DEFAULT_ERROR
    assert results["direct"] == DEFAULT_ERROR
    assert results["unknown"].content[0].text == "Unknown tool: nowhere"


def test_failure_functions() -> None:
    """The server's own counts most, then the agent's; ``None`` raises."""

    async def scenario() -> list[Any]:
        texts = []
        for own in ({}, {"failure_error_function": lambda ctx, error: f"own: {error}"}):
            async with odd_server("schemas", **own) as server:
                tools = await MCPUtil.get_function_tools(
                    server, False, RUN, AGENT, failure_error_function=lambda ctx, e: f"agent: {e}"
                )
                texts += [await invoke(tool) for tool in tools if tool.name == "needy"]
        async with odd_server("schemas", failure_error_function=None) as server:
            with pytest.raises(UserError, match="missing required parameters: x"):
                await invoke((await tools_of(server))["needy"])
        return texts

    problem = "Failed to call tool 'needy' on MCP server 'odd': missing required parameters: x"
    assert asyncio.run(scenario()) == [f"agent: {problem}", f"own: {problem}"]


def test_schemas_are_made_strict_where_that_is_possible() -> None:
    async def scenario() -> dict[str, FunctionTool]:
        async with odd_server("schemas") as server:
            return await tools_of(server, strict=True)

    tools = asyncio.run(scenario())
    assert {name for name, tool in tools.items() if tool.strict_json_schema} == {"needy"}
    assert tools["needy"].params_json_schema["additionalProperties"] is False
    assert tools["plain"].params_json_schema == {"type": "object", "properties": {}}
    assert tools["bare"].description == "Bare title"
    assert tools["lost"].params_json_schema["properties"]["x"]["$ref"] == "#/$defs/lost"


def test_an_invalid_listing_is_a_clear_error() -> None:
    async def scenario() -> None:
        async with odd_server("invalid") as server:
            await server.list_tools()

    with pytest.raises(UserError, match="Failed to list tools from MCP server 'odd': The server's"):
        asyncio.run(scenario())


def test_two_servers_with_one_tool_name() -> None:
    async def scenario(**options: Any) -> list[FunctionTool]:
        async with odd_server(name="one") as one, odd_server(name="two") as two:
            return await MCPUtil.get_all_function_tools([one, two], False, RUN, AGENT, **options)

    with pytest.raises(UserError, match=r"Duplicate tool names .*'only'.*include_server_in_tool"):
        asyncio.run(scenario())
    tools = asyncio.run(scenario(include_server_in_tool_names=True))
    assert [tool.name for tool in tools] == ["mcp_one__only", "mcp_two__only"]
    reserved = asyncio.run(
        scenario(include_server_in_tool_names=True, reserved_tool_names={"mcp_one__only"})
    )
    assert reserved[0].name.startswith("mcp_one__only_") and reserved[1].name == "mcp_two__only"


def test_the_model_calls_by_the_prefixed_name_and_the_server_by_its_own() -> None:
    async def scenario() -> Any:
        async with tool_server(name="größer als alles, was " + "lang " * 20) as server:
            tools = await MCPUtil.get_function_tools(
                server, False, RUN, AGENT, include_server_in_tool_names=True
            )
            assert all(len(tool.name) == 64 for tool in tools)
            whoami = next(tool for tool in tools if tool.description.startswith("Tell which"))
            return await invoke(whoami)

    assert asyncio.run(scenario())["text"].isdigit()


def test_structured_content_replaces_text_on_request() -> None:
    async def scenario(structured: bool) -> Any:
        async with odd_server(use_structured_content=structured) as server:
            return await invoke((await tools_of(server))["only"], '{"x": 1}')

    assert asyncio.run(scenario(False)) == {"type": "text", "text": "as text"}
    assert json.loads(asyncio.run(scenario(True)))["arguments"] == {"x": 1}


def test_meta_goes_to_the_server_and_custom_data_to_the_application() -> None:
    seen: list[Any] = []

    async def resolve(call: MCPToolMetaContext) -> dict[str, Any]:
        seen.append((call.server_name, call.tool_name, call.arguments))
        return {"user": "u1", "static": "overridden"}

    def extract(call: MCPToolCustomDataContext) -> dict[str, Any]:
        assert call.structured_content is not None and call.result_meta is not None
        return {"meta": call.structured_content["meta"], "cost": call.result_meta["cost"]}

    async def scenario() -> Any:
        options = {"tool_meta_resolver": resolve, "custom_data_extractor": extract}
        async with odd_server("schemas", **options) as server:
            tool = (await tools_of(server))["plain"]
            call = context(tool)
            output = await tool.on_invoke_tool(call, '{"x": 1}')
            assert tool.custom_data_extractor is not None
            return tool.custom_data_extractor(FunctionToolCustomDataContext(call, tool, output, {}))

    data = asyncio.run(scenario())
    assert seen == [("odd", "plain", {"x": 1})]
    assert data["cost"] == 7
    assert {"user": "u1", "static": True}.items() <= data["meta"].items()


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (["no mapping"], "must return a mapping or None"),
        ({1: "x"}, "string keys"),
        ({"x": object()}, "JSON-compatible"),
        ({"x": float("nan")}, "JSON-compatible"),
    ],
)
def test_custom_data_must_be_a_json_object(made: Any, problem: str) -> None:
    async def scenario() -> None:
        options = {"custom_data_extractor": lambda call: made, "failure_error_function": None}
        async with odd_server(**options) as server:
            await invoke((await tools_of(server))["only"])

    with pytest.raises(UserError, match=problem):
        asyncio.run(scenario())


def test_filters() -> None:
    def by_function(asked: ToolFilterContext, tool: Any) -> bool:
        assert (asked.agent, asked.run_context, asked.server_name) == (AGENT, RUN, "odd")
        tool.name = "changed"
        tool.input_schema = {}
        return bool(tool.description)

    async def failing(asked: ToolFilterContext, tool: Any) -> bool:
        if tool.name == "plain":
            raise ValueError("filter")
        return bool(tool.name == "bare")

    async def scenario() -> list[list[str]]:
        names = []
        async with odd_server("schemas", cache_tools_list=True) as server:
            for each in (
                create_static_tool_filter(["plain", "bare"], ["bare"]),
                create_static_tool_filter(blocked_tool_names=["plain", "lost"]),
                by_function,
                failing,
                None,
            ):
                server.tool_filter = each
                names.append([tool.name for tool in await server.list_tools(RUN, AGENT)])
            server.tool_filter = by_function
            with pytest.raises(UserError, match="run_context and agent are required"):
                await server.list_tools()
        return names

    static, blocked, dynamic, failing_names, everything = asyncio.run(scenario())
    assert static == ["plain"]
    assert set(everything) - set(blocked) == {"plain", "lost"}
    assert dynamic == ["needy"]
    assert failing_names == ["bare"]
    assert len(everything) == 7
    assert create_static_tool_filter() is None


def test_approval_reaches_the_tools() -> None:
    async def scenario(**options: Any) -> dict[str, FunctionTool]:
        async with odd_server("schemas", **options) as server:
            return await tools_of(server)

    tools = asyncio.run(scenario(require_approval={"plain": "always", "bare": "never"}))
    assert (tools["plain"].needs_approval, tools["bare"].needs_approval) == (True, False)

    async def only_plain(run: Any, agent: Any, tool: Any) -> bool:
        assert (run, agent) == (RUN, AGENT)
        return bool(tool.name == "plain")

    async def ask(tool: FunctionTool) -> bool:
        assert callable(tool.needs_approval)
        return bool(await tool.needs_approval(RUN, {}, "call-1"))  # type: ignore[misc]

    tools = asyncio.run(scenario(require_approval=only_plain))
    assert asyncio.run(ask(tools["plain"])) is True
    assert asyncio.run(ask(tools["bare"])) is False


def test_guardrails_of_a_server_are_those_of_its_tools() -> None:
    before, after = object(), object()

    async def scenario() -> FunctionTool:
        options = {"tool_input_guardrails": [before], "tool_output_guardrails": [after]}
        async with odd_server(**options) as server:
            return (await tools_of(server))["only"]

    tool = asyncio.run(scenario())
    assert (tool.tool_input_guardrails, tool.tool_output_guardrails) == ([before], [after])


def test_prompts_and_resources() -> None:
    async def scenario() -> None:
        async with tool_server() as server:
            (prompt,) = (await server.list_prompts()).prompts
            filled = await server.get_prompt(prompt.name, {"name": "Bo"})
            assert filled.messages[0].content.text == "Greet Bo."
            (resource,) = (await server.list_resources()).resources
            read = await server.read_resource(str(resource.uri))
            assert read.contents[0].text == "nothing happened"
            templates = await server.list_resource_templates()
            assert "note://{day}/summary" in templates.model_dump_json()

    asyncio.run(scenario())


def test_pages_are_followed_and_bounded() -> None:
    async def scenario() -> None:
        async with odd_server("pages") as server:
            assert [tool.name for tool in await server.list_tools()] == ["first", "second"]
            assert [each.name for each in (await server.list_prompts()).prompts] == [
                "first",
                "second",
            ]
            server.max_list_pages = 1
            with pytest.raises(UserError, match="tool listing exceeded max_list_pages"):
                await server.list_tools()
            with pytest.raises(UserError, match="prompt listing exceeded max_list_pages"):
                await server.list_prompts()
        async with odd_server("loop", max_retry_attempts=-1) as server:
            with pytest.raises(UserError, match="repeated cursor while listing tools"):
                await server.list_tools()

    asyncio.run(scenario())


def test_the_cache_of_tools() -> None:
    async def scenario() -> None:
        async with odd_server("counting", cache_tools_list=True) as server:
            assert server.cached_tools is None
            names = [[tool.name for tool in await server.list_tools()] for _ in range(2)]
            assert names == [["asked_1"], ["asked_1"]]
            (first,) = await server.list_tools()
            first.name = "changed"
            server.invalidate_tools_cache()
            kept: list[Any] | None = server.cached_tools
            assert kept is not None and [tool.name for tool in kept] == ["asked_1"]
            assert [tool.name for tool in await server.list_tools()] == ["asked_2"]
            server.cache_tools_list = False
            assert [tool.name for tool in await server.list_tools()] == ["asked_3"]

    asyncio.run(scenario())


def test_a_call_that_is_cancelled_from_within_is_an_error_not_a_cancellation() -> None:
    async def scenario() -> None:
        async with odd_server(failure_error_function=None) as server:
            tool = (await tools_of(server))["only"]
            connection = server._connection
            assert isinstance(connection, Connection)

            async def cancelled(*args: Any, **more: Any) -> Any:
                raise asyncio.CancelledError

            connection.session.call_tool = cancelled
            with pytest.raises(MCPToolCancellationError, match="tool execution was cancelled"):
                await invoke(tool)

    asyncio.run(scenario())


def test_a_tool_that_hangs_is_told_to_the_model() -> None:
    async def scenario() -> Any:
        async with odd_server(client_session_timeout_seconds=1) as server:
            (only,) = await server.list_tools()
            tool = MCPUtil.to_function_tool(
                only.model_copy(update={"name": "hang"}), server, convert_schemas_to_strict=False
            )
            return await invoke(tool)

    assert asyncio.run(scenario()) == DEFAULT_ERROR
