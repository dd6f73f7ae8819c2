"""Connections to real servers: opening, losing, renewing, hanging, closing."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.mcp.programs import (
    HttpProgram,
    http_program,
    http_server,
    odd_server,
)

from sandstream.exceptions import UserError
from sandstream.mcp import (
    ConnectedServers,
    MCPServer,
    MCPServerManager,
    MCPServerSse,
    MCPServerStdio,
    MCPServerStreamableHttp,
)
from sandstream.mcp.server import MCPServer as BaseServer


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def _pid(server: MCPServer) -> int:
    return int((await server.call_tool("whoami", {})).content[0].text)


def test_a_server_must_be_connected() -> None:
    server = odd_server()
    uses: list[Callable[[], Awaitable[Any]]] = [
        server.list_tools,
        lambda: server.call_tool("echo", {}),
        server.list_prompts,
        lambda: server.get_prompt("greeting"),
        server.list_resources,
        server.list_resource_templates,
        lambda: server.read_resource("note://today"),
    ]

    async def scenario() -> None:
        for use in uses:
            with pytest.raises(UserError, match=r"Make sure you call `connect\(\)` first"):
                await use()
        await server.cleanup()

    asyncio.run(scenario())
    assert server.session is None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def no_client(
    headers: dict[str, str] | None = None, timeout: object = None, auth: object = None
) -> None:
    """Not what a factory of HTTP clients has to return."""


def test_what_cannot_be_connected_says_why() -> None:
    closed = f"http://user:secret@127.0.0.1:{_free_port()}"
    safe = closed.replace("user:secret@", "")
    unreachable = "Could not reach the server."
    cases: list[tuple[MCPServer, str]] = [
        (MCPServerStdio({"command": "/no/such"}), "'stdio: /no/such': No such file or directory"),
        (MCPServerStdio({"command": "true"}, name="t"), "'t': The server ended the connection"),
        (MCPServerSse({"url": f"{closed}/sse?k=v"}), f"'sse: {safe}/sse': {unreachable}"),
        (
            MCPServerStreamableHttp({"url": f"{closed}/mcp#f"}),
            f"'streamable_http: {safe}/mcp': {unreachable}",
        ),
        (
            MCPServerStreamableHttp({"url": f"{closed}/mcp", "auth": ("user", "secret")}, name="a"),
            "The auth of an MCP server must be",
        ),
        (
            MCPServerSse({"url": closed, "httpx_client_factory": no_client}, name="f"),
            "must return an instance of",
        ),
    ]

    async def problem(server: MCPServer) -> UserError:
        with pytest.raises(UserError) as caught:
            await server.connect()
        with pytest.raises(UserError, match="Server not initialized"):
            await server.list_tools()
        return caught.value

    for server, expected in cases:
        error = asyncio.run(problem(server))
        assert expected in str(error)
        assert "secret" not in f"{error}{error.__cause__!r}{error.__context__!r}"


def test_a_wrong_path_says_so() -> None:
    async def scenario(running: HttpProgram) -> None:
        server = MCPServerStreamableHttp({"url": f"{running.url}/wrong"})
        with pytest.raises(UserError, match=r"HTTP error 404 \(Not Found\)"):
            await server.connect()

    with http_program("http") as running:
        asyncio.run(scenario(running))


def test_one_task_connects_others_call_and_another_cleans_up() -> None:
    async def scenario() -> None:
        server = odd_server()
        await asyncio.create_task(server.connect())
        await server.connect()  # nothing to do
        pids = await asyncio.gather(*(_pid(server) for _ in range(5)))
        assert len(set(pids)) == 1
        await asyncio.create_task(server.cleanup())
        assert not _is_running(pids[0])
        await server.cleanup()
        await server.connect()  # and again
        assert await _pid(server) != pids[0]
        await server.cleanup()

    asyncio.run(scenario())


def test_a_server_that_dies_in_a_call_is_a_clear_error_and_stays_lost_without_retries() -> None:
    async def scenario() -> None:
        async with odd_server() as server:
            with pytest.raises(UserError, match="call tool 'die' on MCP server 'odd': Connect"):
                await server.call_tool("die", {})
            assert server.connection_lost
            with pytest.raises(UserError, match=r"Connection lost.*set max_retry_attempts"):
                await server.call_tool("echo", {"text": "x"})
            with pytest.raises(UserError, match=r"Failed to list tools from .*Connection lost"):
                await server.list_tools()
            await server.connect()
            assert await _pid(server)

    asyncio.run(scenario())


def test_with_retries_the_next_call_reconnects() -> None:
    async def scenario() -> None:
        async with odd_server(max_retry_attempts=1, retry_backoff_seconds_base=0) as server:
            before = await _pid(server)
            with pytest.raises(UserError, match="Connection lost"):
                await server.call_tool("die", {})  # in the second server, too
            pids = await asyncio.gather(_pid(server), _pid(server))
            assert pids[0] == pids[1] != before, "one connection for both"

    asyncio.run(scenario())


def test_an_http_server_that_was_started_again_is_found_again() -> None:
    async def scenario(running: HttpProgram, *, retries: int) -> None:
        server = http_server(running, max_retry_attempts=retries, retry_backoff_seconds_base=0)
        async with server:
            before = await _pid(server)
            running.kill()
            if retries == 0:
                with pytest.raises(UserError, match="Connection lost"):
                    await _pid(server)
            with http_program("http", running.port):
                if retries == 0:
                    await server.connect()
                assert await _pid(server) != before

    for retries in (0, 1):
        with http_program("http") as running:
            asyncio.run(scenario(running, retries=retries))


def test_refused_requests_are_tried_again_as_often_as_said() -> None:
    async def scenario() -> None:
        options = {"retry_backoff_seconds_base": 0.001, "retry_backoff_seconds_max": 0.002}
        async with odd_server("flaky", **options) as server:
            with pytest.raises(Exception, match="not yet"):
                await server.list_tools()
        for attempts in (1, -1):
            async with odd_server("flaky", max_retry_attempts=attempts, **options) as server:
                assert [tool.name for tool in await server.list_tools()] == ["only"]
                assert (await server.call_tool("only", {})).content[0].text == "as text"

    asyncio.run(scenario())


def test_a_call_that_is_never_answered_ends_with_the_sessions_limit() -> None:
    async def scenario() -> None:
        async with odd_server(client_session_timeout_seconds=1) as server:
            with pytest.raises(Exception, match=r"(?i)timed out"):
                await server.call_tool("hang", {})
            assert not server.connection_lost
            assert [tool.name for tool in await server.list_tools()] == ["only"]

    asyncio.run(scenario())


def test_a_request_that_cannot_even_be_written_ends_with_the_limit() -> None:
    """More than a pipe holds, to a server that does not read: the package alone would wait."""

    async def scenario() -> None:
        async with odd_server("deaf", client_session_timeout_seconds=0.5) as server:
            with pytest.raises(Exception, match=r"(?i)timeout|timed out"):
                await server.call_tool("only", {"text": "x" * 1_000_000})

    asyncio.run(scenario())


def test_a_cancelled_call_leaves_the_connection_sound() -> None:
    async def scenario() -> None:
        async with odd_server() as server:
            before = await _pid(server)
            call = asyncio.create_task(server.call_tool("hang", {}))
            done, _ = await asyncio.wait({call}, timeout=0.2)
            assert not done
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await _pid(server) == before

    asyncio.run(scenario())


def test_cleanup_ends_a_call_that_hangs() -> None:
    async def scenario() -> None:
        server = odd_server()
        await server.connect()
        call = asyncio.create_task(server.call_tool("hang", {}))
        await asyncio.wait({call}, timeout=0.2)
        await server.cleanup()
        with pytest.raises(UserError, match="Connection lost"):
            await call

    asyncio.run(scenario())


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.3])
def test_cleanup_ends_a_connect_that_hangs(after_s: float) -> None:
    """Before the package is loaded, before the program is started, and in the handshake."""

    async def scenario() -> None:
        server = odd_server("silent", client_session_timeout_seconds=None)
        connecting = asyncio.create_task(server.connect())
        done, _ = await asyncio.wait({connecting}, timeout=after_s)
        assert not done
        await server.cleanup()
        with pytest.raises(UserError, match="Failed to connect to MCP server 'odd'"):
            await connecting
        assert server.session is None

    asyncio.run(scenario())


def test_retries_for_ever_end_with_the_connection() -> None:
    async def scenario() -> None:
        options = {"max_retry_attempts": -1, "retry_backoff_seconds_base": 0.001}
        server = odd_server("flaky", **options)
        await server.connect()
        server.params["command"] = "/no/such"
        call = asyncio.create_task(server.call_tool("die", {}))
        done, _ = await asyncio.wait({call}, timeout=0.3)
        assert not done
        await server.cleanup()
        with pytest.raises(UserError, match="Server not initialized"):
            await call

    asyncio.run(scenario())


def test_a_silent_server_does_not_hold_a_manager_up() -> None:
    async def scenario(parallel: bool) -> None:
        silent, sound = odd_server("silent", name="silent"), odd_server(name="sound")
        manager = MCPServerManager(
            [silent, sound, silent], connect_timeout_seconds=1, connect_in_parallel=parallel
        )
        assert manager.all_servers == manager.active_servers == [silent, sound]
        async with manager:
            assert manager.active_servers == [sound]
            assert manager.failed_servers == [silent]
            assert isinstance(manager.errors[silent], TimeoutError)
            assert await sound.list_tools()
        assert sound.session is None

    for parallel in (False, True):
        asyncio.run(scenario(parallel))


def test_a_strict_manager_raises_and_leaves_nothing_behind() -> None:
    async def scenario(parallel: bool) -> None:
        sound, broken = odd_server(), MCPServerStdio({"command": "/no/such"})
        manager = MCPServerManager([sound, broken], strict=True, connect_in_parallel=parallel)
        with pytest.raises(UserError, match="No such file"):
            await manager.connect_all()
        assert (sound.session, manager.active_servers) == (None, [])

    for parallel in (False, True):
        asyncio.run(scenario(parallel))


def test_a_manager_reconnects_what_failed() -> None:
    class Late(_Recorded):
        async def connect(self) -> None:
            await super().connect()
            if self.tasks.count(("connect", id(asyncio.current_task()))) and len(self.tasks) < 3:
                raise ConnectionError("not yet")

    async def scenario() -> None:
        late = Late()
        manager = MCPServerManager([late], drop_failed_servers=False)
        async with manager:
            assert (manager.active_servers, manager.failed_servers) == ([late], [late])
            assert await manager.reconnect() == [late]
            assert (manager.failed_servers, manager.errors) == ([], {})
            assert await manager.reconnect(failed_only=False) == [late]
        assert [kind for kind, _ in late.tasks] == ["connect", "cleanup"] * 3
        assert [late.tasks[at][1] == late.tasks[at + 1][1] for at in (0, 2, 4)] == [True] * 3

    asyncio.run(scenario())


class _Recorded(BaseServer):
    """A server of the user's own that notes in which task it is connected and cleaned up."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[tuple[str, int]] = []

    @property
    def name(self) -> str:
        return "recorded"

    async def connect(self) -> None:
        self.tasks.append(("connect", id(asyncio.current_task())))

    async def cleanup(self) -> None:
        self.tasks.append(("cleanup", id(asyncio.current_task())))

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[Any]:
        return []

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> Any:
        raise AssertionError("not called")

    async def list_prompts(self) -> Any:
        raise AssertionError("not called")

    async def get_prompt(self, name: str, arguments: Any = None) -> Any:
        raise AssertionError("not called")


def test_a_server_of_the_users_own_has_no_resources_unless_it_says_so() -> None:
    async def scenario() -> None:
        server = _Recorded()
        for use in (server.list_resources, server.list_resource_templates):
            with pytest.raises(NotImplementedError, match="'recorded' does not support list_reso"):
                await use()
        with pytest.raises(NotImplementedError, match="does not support read_resource"):
            await server.read_resource("x")

    asyncio.run(scenario())


def test_a_server_that_cancels_itself_has_failed() -> None:
    class Cancelling(_Recorded):
        async def connect(self) -> None:
            raise asyncio.CancelledError

    async def scenario() -> None:
        server = Cancelling()
        async with MCPServerManager([server]) as manager:
            assert manager.failed_servers == [server]
        with pytest.raises(asyncio.CancelledError):
            await MCPServerManager([server], suppress_cancelled_error=False).connect_all()

    asyncio.run(scenario())


def test_a_cancelled_manager_cleans_up_what_it_began() -> None:
    class Endless(_Recorded):
        async def connect(self) -> None:
            await super().connect()
            started.set()
            await asyncio.Event().wait()

    started = asyncio.Event()

    async def scenario() -> None:
        server = Endless()
        connecting = asyncio.create_task(MCPServerManager([server]).connect_all())
        await started.wait()
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        assert [kind for kind, _ in server.tasks] == ["connect", "cleanup"]

    asyncio.run(scenario())


def test_a_workers_servers() -> None:
    """One is missing at first, one dies: both come back when they are needed."""

    async def scenario() -> None:
        port = _free_port()
        url = f"http://127.0.0.1:{port}/mcp"
        absent = MCPServerStreamableHttp({"url": url}, name="absent")
        mortal = odd_server(name="mortal")
        async with ConnectedServers([mortal, absent, mortal]) as servers:
            assert servers.errors.keys() == {absent}
            await servers.ensure([mortal])
            with pytest.raises(UserError, match=r"'absent' is not connected: .*Could not reach"):
                await servers.ensure([mortal, absent])
            with http_program("http", port):
                await servers.ensure([absent])
                assert await _pid(absent)
                assert servers.errors == {}
                first = await _pid(mortal)
                with pytest.raises(UserError, match="Connection lost"):
                    await mortal.call_tool("die", {})
                await asyncio.gather(*(servers.ensure([mortal]) for _ in range(3)))
                second = await _pid(mortal)
                assert second != first
                with pytest.raises(UserError, match="is not one of this worker's"):
                    await servers.ensure([_Recorded()])
        assert not _is_running(second)
        assert (mortal.session, absent.session) == (None, None)
        with pytest.raises(UserError, match="its worker stops"):
            await servers.ensure([mortal])

    asyncio.run(scenario())


def test_a_worker_stops_though_a_server_does_not_close() -> None:
    class Stuck(_Recorded):
        async def cleanup(self) -> None:
            await super().cleanup()
            await asyncio.Event().wait()

    async def scenario() -> None:
        server = Stuck()
        async with ConnectedServers([server], cleanup_timeout_seconds=0.1):
            pass
        assert [kind for kind, _ in server.tasks] == ["connect", "cleanup"]

    asyncio.run(scenario())


def test_the_package_is_imported_when_a_server_connects() -> None:
    code = """
import asyncio, sys
import sandstream.mcp as ours
server = ours.MCPServerStdio({"command": "true"})
assert "mcp" not in sys.modules
sys.modules["mcp"] = None
try:
    asyncio.run(server.connect())
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "UserError" in done.stdout, done.stderr
    assert "pip install sandstream[mcp]" in done.stdout
