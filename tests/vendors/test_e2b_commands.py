"""Commands and terminals in boxes of the local E2B, driven by the vendor's SDK."""

from __future__ import annotations

import asyncio
import json
import os
import struct
from collections.abc import Iterator

import httpx
import pytest
from e2b import (
    AsyncSandbox,
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    PtySize,
    SandboxException,
    SandboxNotRunningException,
    TimeoutException,
)
from vendors.e2b_boxes import box, in_loop
from vendors.process import VendorServer

MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VendorServer]:
    with VendorServer.start("e2b", home=tmp_path_factory.mktemp("e2b")) as started:
        yield started


async def lines(sandbox: AsyncSandbox, command: str) -> list[str]:
    return (await sandbox.commands.run(command)).stdout.splitlines()


@in_loop
async def test_a_command_runs_in_a_login_shell(vendor: VendorServer) -> None:
    async with box(vendor, envs={"A": "box", "B": "box"}) as sandbox:
        done = await sandbox.commands.run(
            'shopt -q login_shell && echo $A $B $C; pwd; cat; echo "$HOME" >&2',
            envs={"B": "command", "C": "1"},
            cwd="/tmp",
        )
        assert (done.stdout, done.stderr) == ("box command 1\n/tmp\n", "/home/user\n")
        assert await lines(sandbox, "id -un; hostname; pwd") == ["user", "e2b.local", "/home/user"]


@in_loop
async def test_exit_codes(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        with pytest.raises(CommandExitException) as failed:
            await sandbox.commands.run("echo out; echo err >&2; exit 3")
        assert (failed.value.exit_code, failed.value.error) == (3, "exit status 3")
        assert (failed.value.stdout, failed.value.stderr) == ("out\n", "err\n")
        with pytest.raises(CommandExitException) as killed:
            await sandbox.commands.run("kill -9 $$")
        assert (killed.value.exit_code, killed.value.error) == (-1, "signal: killed")


@in_loop
async def test_users_and_directories(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        with pytest.raises(CommandExitException, match="Permission denied"):
            await sandbox.commands.run("mkdir /data")
        made = await sandbox.commands.run("mkdir /data; echo $HOME $USER", user="root")
        assert made.stdout == "/root root\n"
        assert (await sandbox.commands.run("pwd", cwd="/data")).stdout == "/data\n"
        with pytest.raises(InvalidArgumentException, match="cwd '/nothing' does not exist"):
            await sandbox.commands.run("pwd", cwd="/nothing")
        with pytest.raises(AuthenticationException, match="invalid username: 'eve'"):
            await sandbox.commands.run("pwd", user="eve")


@in_loop
async def test_an_argument_has_a_largest_size(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        assert await lines(sandbox, f"true {'x' * 131_000}; echo 1") == ["1"]
        with pytest.raises(InvalidArgumentException, match="argument list too long"):
            await sandbox.commands.run(f"true {'x' * 132_000}")


@in_loop
async def test_much_output_arrives_in_order(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        done = await sandbox.commands.run(f"seq 1 200000; head -c {MEGABYTE} /dev/zero >&2")
        assert done.stdout.split() == [str(number) for number in range(1, 200_001)]
        assert done.stderr == "\0" * MEGABYTE


@in_loop
async def test_the_end_waits_for_all_holders_of_the_output(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        waited = sandbox.commands.run("(while [ ! -e go ]; do sleep 0.01; done; echo late) & :")
        running = asyncio.create_task(waited)
        await asyncio.sleep(0.2)
        assert not running.done()
        await sandbox.files.write("go", "")
        assert (await running).stdout == "late\n"


@in_loop
async def test_a_kill_reaches_only_the_process(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        handle = await sandbox.commands.run(
            "sleep 1001 & sleep 1002 & wait", background=True, timeout=0
        )
        while len(await lines(sandbox, "pgrep -x sleep || true")) != 2:
            await asyncio.sleep(0.01)
        assert await handle.kill()
        with pytest.raises(CommandExitException) as killed:
            await handle.wait()
        assert killed.value.error == "signal: killed"
        assert not await handle.kill()
        assert len(await lines(sandbox, "pgrep -x sleep")) == 2


@in_loop
async def test_a_deadline_kills_the_process(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        handle = await sandbox.commands.run(
            "sleep 1003 & echo $! > child; exec sleep 1004", background=True, timeout=1.5
        )
        with pytest.raises((TimeoutException, CommandExitException)):
            await handle.wait()
        while await sandbox.commands.list():
            await asyncio.sleep(0.01)
        with pytest.raises(CommandExitException) as killed:
            await (await sandbox.commands.connect(handle.pid)).wait()
        assert killed.value.error == "signal: killed"
        await sandbox.commands.run("kill -0 $(cat child)")


@in_loop
async def test_a_deadline_of_a_connection_kills_nothing(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        handle = await sandbox.commands.run("sleep 1005", background=True, timeout=0)
        with pytest.raises(TimeoutException):
            connected = await sandbox.commands.connect(handle.pid, timeout=0.2)
            await connected.wait()
        assert [found.pid for found in await sandbox.commands.list()] == [handle.pid]


@in_loop
async def test_a_connection_replays_nothing(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        seen = asyncio.Event()
        handle = await sandbox.commands.run(
            "echo first; until [ -e go ]; do sleep 0.01; done; echo second; exit 7",
            background=True,
            timeout=0,
            on_stdout=lambda text: seen.set(),
        )
        await seen.wait()
        await handle.disconnect()
        connected = await sandbox.commands.connect(handle.pid, timeout=0)
        await sandbox.files.write("go", "")
        with pytest.raises(CommandExitException) as ended:
            await connected.wait()
        assert (ended.value.stdout, ended.value.exit_code) == ("second\n", 7)


@in_loop
async def test_an_exit_code_is_kept_for_a_while(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        handle = await sandbox.commands.run("cat; exit 7", background=True, stdin=True, timeout=0)
        await handle.disconnect()
        await sandbox.commands.send_stdin(handle.pid, "lost\n")
        await sandbox.commands.close_stdin(handle.pid)
        while await sandbox.commands.list():
            await asyncio.sleep(0.01)
        with pytest.raises(CommandExitException) as ended:
            await (await sandbox.commands.connect(handle.pid)).wait()
        assert (ended.value.stdout, ended.value.exit_code) == ("", 7)
        vendor.configure(exit_kept_s=0.0)
        try:
            gone = await sandbox.commands.run("exit 0", background=True)
            await gone.wait()
            with pytest.raises(NotFoundException, match=f"pid {gone.pid} not found"):
                while True:
                    await sandbox.commands.connect(gone.pid)
        finally:
            vendor.configure(exit_kept_s=30.0)


@in_loop
async def test_input_is_a_channel(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        received: asyncio.Queue[str] = asyncio.Queue()
        handle = await sandbox.commands.run(
            "while read line; do echo got $line; done",
            background=True,
            stdin=True,
            timeout=0,
            on_stdout=received.put_nowait,
        )
        for number in range(5):
            await handle.send_stdin(f"{number}\n")
            assert await received.get() == f"got {number}\n"
        async with sandbox.commands.stream_input(handle.pid, timeout=0) as stream:
            for number in range(5):
                await stream.send(f"{number}\n")
                assert await received.get() == f"got {number}\n"
        await handle.close_stdin()
        assert (await handle.wait()).exit_code == 0


@in_loop
async def test_large_input_is_binary_safe(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        data = os.urandom(MEGABYTE)
        handle = await sandbox.commands.run("cat > file", background=True, stdin=True, timeout=0)
        async with sandbox.commands.stream_input(handle.pid, timeout=0) as stream:
            await stream.send(data)
        await handle.send_stdin(data)
        await handle.close_stdin()
        await handle.wait()
        assert bytes(await sandbox.files.read("file", format="bytes")) == data + data


@in_loop
async def test_input_needs_a_process_that_takes_it(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        deaf = await sandbox.commands.run("sleep 1006", background=True, timeout=0)
        with pytest.raises(SandboxException, match="stdin not enabled or closed"):
            await deaf.send_stdin("x")
        with pytest.raises(NotFoundException):
            await sandbox.commands.send_stdin(9999, "x")
        stream = sandbox.commands.stream_input(9999)
        with pytest.raises(NotFoundException):
            await stream.close()
        closed = await sandbox.commands.run(
            "exec <&-; sleep 1007", background=True, stdin=True, timeout=0
        )
        with pytest.raises(SandboxException, match="broken pipe"):
            while True:
                await closed.send_stdin("x")


@in_loop
async def test_a_terminal(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        shown: list[bytes] = []
        terminal = await sandbox.pty.create(PtySize(rows=30, cols=100), shown.append, timeout=0)

        async def shows(text: bytes) -> None:
            while text not in b"".join(shown):
                await asyncio.sleep(0.01)

        await sandbox.pty.send_stdin(terminal.pid, b"stty size; tty\n")
        await shows(b"30 100\r\n/dev/pts/0")
        await sandbox.pty.resize(terminal.pid, PtySize(rows=40, cols=120))
        async with sandbox.pty.stream_input(terminal.pid) as stream:
            await stream.send("stty size; echo $TERM\n")
        await shows(b"40 120\r\nxterm-256color")
        await terminal.disconnect()
        again = await sandbox.pty.connect(terminal.pid, shown.append, timeout=0)
        await sandbox.pty.send_stdin(terminal.pid, b"exit 4\n")
        with pytest.raises(CommandExitException, match="code 4"):
            await again.wait()
        assert not await sandbox.pty.kill(terminal.pid)


@in_loop
async def test_a_pause_or_a_kill_ends_streams(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        paused = await sandbox.commands.run("sleep 1008", background=True, timeout=0)
        await sandbox.pause()
        with pytest.raises(SandboxNotRunningException):
            await paused.wait()
        await sandbox.connect()
        vendor.configure(stream_end="unavailable")
        try:
            killed = await sandbox.commands.connect(paused.pid, timeout=0)
            await sandbox.kill()
            with pytest.raises(SandboxNotRunningException, match="ended before the stream"):
                await killed.wait()
        finally:
            vendor.configure(stream_end="reset")


@in_loop
async def test_idle_streams_are_kept_alive(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        vendor.configure(keepalive_s=0.05)
        try:
            events = await _events(vendor, sandbox, {"cmd": "/bin/sleep", "args": ["1"]})
        finally:
            vendor.configure(keepalive_s=None)
        kinds = [next(iter(event["event"])) for event in events]
        assert kinds[0] == "start" and kinds[-1] == "end" and "keepalive" in kinds


async def _events(
    vendor: VendorServer, sandbox: AsyncSandbox, process: dict[str, object]
) -> list[dict[str, dict[str, object]]]:
    """All events of a process, without the SDK."""
    message = json.dumps({"process": process, "stdin": False}).encode()
    headers = {
        **sandbox.connection_config.sandbox_headers,
        "Content-Type": "application/connect+json",
        "Connect-Protocol-Version": "1",
    }
    async with httpx.AsyncClient(base_url=vendor.sandbox_url, trust_env=False) as client:
        answer = await client.post(
            "/process.Process/Start",
            content=struct.pack(">BI", 0, len(message)) + message,
            headers=headers,
        )
    found, rest = [], answer.content
    while rest:
        flag, length = struct.unpack(">BI", rest[:5])
        if flag == 0:
            found.append(json.loads(rest[5 : 5 + length]))
        rest = rest[5 + length :]
    return found
