"""MCP servers as a source of tools: listing, filters, names, approval, errors, caching."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from comparison import mcp_server
from comparison.peer import ENVIRONMENT
from comparison.program import MODEL, Probe, program

_OF_THE_PACKAGE = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("packaged")
@server.tool(description="Greets.")
def greet(name: str) -> str:
    return f"Hello, {name}."
server.run()
"""


def add(m: Any) -> list[Any]:
    return [m.tool_call("add", {"a": 2, "b": 3}), m.text("Five.")]


def server(sdk: Any, probe: Probe, **options: Any) -> Any:
    """The small server, with a journal of what it was asked."""
    arguments = [str(Path(mcp_server.__file__)), str(journal(probe))]
    params = {"command": sys.executable, "args": arguments}
    mcp = import_module(f"{sdk.__name__}.mcp")
    return mcp.MCPServerStdio(**{"params": params, "name": "small"} | options)


def journal(probe: Probe) -> Path:
    return probe.folder / "journal"


def agent_with(sdk: Any, *servers: Any, **options: Any) -> Any:
    defaults = {"name": "Connected", "model": MODEL, "mcp_servers": list(servers)}
    return sdk.Agent(**defaults | options)


async def run(sdk: Any, probe: Probe, agent_options: Any = None, **options: Any) -> Any:
    async with server(sdk, probe, **options) as small:
        result = await sdk.Runner.run(agent_with(sdk, small, **agent_options or {}), probe.input)
    probe.note(journal(probe).read_text().splitlines())
    return result


@program(add)
async def mcp_tool(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@program(add)
async def mcp_tool_streamed(sdk: Any, probe: Probe) -> Any:
    async with server(sdk, probe) as small:
        result = sdk.Runner.run_streamed(agent_with(sdk, small), probe.input)
        async for event in result.stream_events():
            if event.type == "run_item_stream_event":
                probe.note(event.name)
    return result.final_output


@program(lambda m: [m.tool_call("greet", {"name": "Ann"}), m.text("Greeted.")])
async def mcp_server_of_the_package(sdk: Any, probe: Probe) -> Any:
    mcp = import_module(f"{sdk.__name__}.mcp")
    python = str(ENVIRONMENT / "v" / "bin" / "python")
    params = {"command": python, "args": ["-c", _OF_THE_PACKAGE]}
    async with mcp.MCPServerStdio(params=params, client_session_timeout_seconds=15) as packaged:
        probe.note(packaged.name == f"stdio: {python}")
        return await sdk.Runner.run(agent_with(sdk, packaged), probe.input)


@program(lambda m: [])
async def mcp_server_without_an_agent(sdk: Any, probe: Probe) -> Any:
    async with server(sdk, probe) as small:
        probe.note(small.name, [tool.name for tool in await small.list_tools()])
        result = await small.call_tool("add", {"a": 1, "b": 1})
        probe.note([part.text for part in result.content])
    return None


@program(lambda m: [m.tool_call("f"), m.tool_call("add", {"a": 2, "b": 3}), m.text("Five.")])
async def mcp_tools_are_listed_every_turn(sdk: Any, probe: Probe) -> Any:
    @sdk.function_tool
    def f() -> str:
        return "f"

    return await run(sdk, probe, {"tools": [f]})


@program(add)
async def mcp_tools_are_cached(sdk: Any, probe: Probe) -> Any:
    async with server(sdk, probe, cache_tools_list=True) as small:
        result = await sdk.Runner.run(agent_with(sdk, small), probe.input)
        probe.note(journal(probe).read_text().splitlines())
        small.invalidate_tools_cache()
        await small.list_tools()
        await small.list_tools()
    probe.note(journal(probe).read_text().splitlines())
    return result


@program(lambda m: [m.text("Hello.")])
async def mcp_tools_allowed_and_blocked(sdk: Any, probe: Probe) -> Any:
    mcp = import_module(f"{sdk.__name__}.mcp")
    chosen = mcp.create_static_tool_filter(
        allowed_tool_names=["add", "fail", "draw"], blocked_tool_names=["fail"]
    )
    probe.note(chosen, mcp.create_static_tool_filter())
    return await run(sdk, probe, tool_filter=chosen)


@program(add)
async def mcp_tools_chosen_by_a_function(sdk: Any, probe: Probe) -> Any:
    async def short(context: Any, tool: Any) -> bool:
        probe.note(context.server_name, context.agent.name, tool.name)
        return len(tool.name) == 3

    return await run(sdk, probe, tool_filter=short)


@program(lambda m: [m.tool_call("fail"), m.text("Sorry.")])
async def mcp_tool_fails(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@program(lambda m: [m.tool_call("die")])
async def mcp_server_dies(sdk: Any, probe: Probe) -> Any:
    async with server(sdk, probe, failure_error_function=None) as small:
        return await sdk.Runner.run(agent_with(sdk, small), probe.input)


@program(lambda m: [m.tool_call("add", '{"a": '), m.text("Sorry.")])
async def mcp_tool_with_broken_arguments(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe)


@program(lambda m: [m.tool_call("add", '{"a": ')])
async def mcp_failures_are_raised(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, {"mcp_config": {"failure_error_function": None}})


@program(lambda m: [m.tool_call("add", '{"a": '), m.text("Sorry.")])
async def mcp_failure_function_of_the_server(sdk: Any, probe: Probe) -> Any:
    def told(ctx: Any, error: Exception) -> str:
        return f"failed: {type(error).__name__}"

    config = {"failure_error_function": None}
    return await run(sdk, probe, {"mcp_config": config}, failure_error_function=told)


@program(
    lambda m: [
        m.tool_calls(("describe", {}), ("draw", {}), ("quiet", {})),
        m.text("Seen."),
    ]
)
async def contents_of_mcp_tools(sdk: Any, probe: Probe) -> Any:
    async with server(sdk, probe) as small:
        return await sdk.Runner.run(agent_with(sdk, small), probe.input)


@program(add)
async def structured_content_of_mcp_tools(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, use_structured_content=True)


@program(lambda m: [m.text("Hello.")])
async def strict_schemas_of_mcp_tools(sdk: Any, probe: Probe) -> Any:
    return await run(sdk, probe, {"mcp_config": {"convert_schemas_to_strict": True}})


@program(lambda m: [m.tool_call("mcp_my_server__add", {"a": 2, "b": 3}), m.text("Five.")])
async def mcp_tools_with_the_servers_name(sdk: Any, probe: Probe) -> Any:
    config = {"include_server_in_tool_names": True}
    return await run(sdk, probe, {"mcp_config": config}, name="my server")


@program(lambda m: [])
async def two_mcp_servers_with_one_tool(sdk: Any, probe: Probe) -> Any:
    async with server(sdk, probe) as one, server(sdk, probe, name="other") as other:
        return await sdk.Runner.run(agent_with(sdk, one, other), probe.input)


@program(add)
async def approval_of_mcp_tools(sdk: Any, probe: Probe) -> Any:
    async with server(sdk, probe, require_approval="always") as small:
        agent = agent_with(sdk, small)
        first = await sdk.Runner.run(agent, probe.input)
        probe.note(journal(probe).read_text().splitlines())
        state = first.to_state()
        state.approve(first.interruptions[0])
        return first, await sdk.Runner.run(agent, state)


@program(
    lambda m: [
        m.tool_calls(("add", {"a": 2, "b": 3}), ("describe", {})),
        m.text("Done."),
    ]
)
async def approval_of_some_mcp_tools(sdk: Any, probe: Probe) -> Any:
    rule = {"always": {"tool_names": ["add"]}, "never": {"tool_names": ["describe"]}}
    async with server(sdk, probe, require_approval=rule) as small:
        agent = agent_with(sdk, small)
        first = await sdk.Runner.run(agent, probe.input)
        state = first.to_state()
        state.reject(first.interruptions[0])
        return first, await sdk.Runner.run(agent, state)


@program(add)
async def mcp_approval_by_a_function(sdk: Any, probe: Probe) -> Any:
    async def decide(ctx: Any, agent: Any, tool: Any) -> bool:
        probe.note(agent.name, tool.name)
        return False

    return await run(sdk, probe, require_approval=decide)


@program(lambda m: [])
async def mcp_server_that_is_not_connected(sdk: Any, probe: Probe) -> Any:
    return await sdk.Runner.run(agent_with(sdk, server(sdk, probe)), probe.input)


@program(lambda m: [])
async def mcp_server_that_does_not_start(sdk: Any, probe: Probe) -> Any:
    wrong = server(sdk, probe, params={"command": "/no/such/command", "args": []})
    try:
        await wrong.connect()
        probe.note("connected")
    except Exception as error:
        probe.note(isinstance(error, OSError | sdk.UserError))
    return None


@program(add)
async def hooks_and_guardrails_of_mcp_tools(sdk: Any, probe: Probe) -> Any:
    class Watching(sdk.RunHooks):
        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            probe.note("start", tool.name, context.tool_arguments)

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            probe.note("end", result)

    @sdk.tool_output_guardrail
    def judge(data: Any) -> Any:
        return sdk.ToolGuardrailFunctionOutput.reject_content("Withheld.")

    async with server(sdk, probe, tool_output_guardrails=[judge]) as small:
        return await sdk.Runner.run(agent_with(sdk, small), probe.input, hooks=Watching())


@program(lambda m: [])
async def mcp_manager(sdk: Any, probe: Probe) -> Any:
    mcp = import_module(f"{sdk.__name__}.mcp")
    wrong = server(sdk, probe, name="wrong", params={"command": "/no/such/command", "args": []})
    async with mcp.MCPServerManager([server(sdk, probe), wrong]) as manager:
        probe.note([one.name for one in manager.active_servers])
        probe.note([one.name for one in manager.failed_servers], len(manager.errors))
    return None
