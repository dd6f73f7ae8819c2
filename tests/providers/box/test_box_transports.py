"""The ways to reach a real agent, and peers that must not reach it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from providers.box.agent_process import alive, shell
from sandstream_providers.box import start
from sandstream_providers.box.agent import wire
from sandstream_providers.box.agent.network import entrance
from sandstream_providers.box.client import AgentBox
from sandstream_providers.box.link import Streams
from sandstream_providers.interface import BoxGone, BoxSpec, NotPermitted, ResolveRule

GOOD = "a-token-of-the-tests-0123456789"


class Agent:
    """One agent process below a directory, reached over the transports that it was given."""

    def __init__(
        self, home: Path, *, token: str = "", streams: bool = False, **listen: str
    ) -> None:
        self.home = home
        self.token = token
        self.file = home / "agent.pyz"
        self.file.write_bytes(start.agent_source())
        self.argv = start.agent_command(
            BoxSpec(key="box", env={"COLOUR": "blue"}),
            agent=str(self.file),
            root=str(home / "workspace"),
            jobs=str(home / "jobs"),
            streams=streams,
            python=sys.executable,
            **listen,
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.where: dict[str, Any] = {}

    def start(self) -> None:
        env = {start.TOKEN: self.token} if self.token else {}
        self.process = subprocess.Popen(self.argv, env=env, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.where = json.loads(line)["listening"]

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()

    async def connect(self) -> Streams:
        if "tcp" in self.where:
            return await asyncio.open_connection(*self.where["tcp"])
        return await asyncio.open_unix_connection(self.where["unix"])

    def box(self, token: str | None = None) -> AgentBox:
        shown = self.token if token is None else token
        return AgentBox("box", str(self.home / "workspace"), self.connect, {}, shown)


@contextlib.asynccontextmanager
async def listening(home: Path, **how: Any) -> AsyncIterator[Agent]:
    agent = Agent(home, **how)
    agent.start()
    try:
        yield agent
    finally:
        agent.stop()


@contextlib.asynccontextmanager
async def client(agent: Agent, token: str | None = None) -> AsyncIterator[AgentBox]:
    box = agent.box(token)
    try:
        yield box
    finally:
        await box.close()


async def answer(reader: asyncio.StreamReader) -> dict[str, Any]:
    size, more = wire.lengths(await reader.readexactly(wire.LENGTHS.size))
    body = await reader.readexactly(size + more)
    return wire.decode(body[:size])


async def refusal(agent: Agent, sent: bytes) -> str:
    """What a peer reads that sends this; the connection ends after it."""
    reader, writer = await agent.connect()
    writer.write(sent)
    try:
        said = await answer(reader)
        assert said["error"]["kind"] == "NotPermitted"
        assert await reader.read() == b""
        return str(said["error"]["message"])
    finally:
        writer.close()


async def works(box: AgentBox) -> None:
    output = await box.run("op-works", shell("echo $COLOUR"))
    assert output.stdout == b"blue\n"


TCP = {"tcp": "127.0.0.1:0", "token": GOOD}


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def open_files(pid: int) -> int:
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


def unix(home: Path) -> dict[str, str]:
    return {"unix": f"/tmp/sandstream-test-{os.getpid()}-{home.name[-12:]}.sock"}


@pytest.fixture
def socket_file(tmp_path: Path) -> Any:
    """A path that is short enough for a socket."""
    chosen = unix(tmp_path)
    yield chosen
    Path(chosen["unix"]).unlink(missing_ok=True)


# --- each transport works -------------------------------------------------------------------------


def test_tcp_serves_a_peer_with_the_token(tmp_path: Path) -> None:
    async def main() -> None:
        async with listening(tmp_path, **TCP) as agent, client(agent) as box:
            await works(box)
            rule = ResolveRule(roots=[box.root])
            await box.append("op-1", f"{box.root}/big", os.urandom(3_000_000), rule, at=0)
            assert len(await box.read(f"{box.root}/big", rule)) == 3_000_000

    asyncio.run(main())


def test_a_unix_socket_is_closed_to_other_users(tmp_path: Path, socket_file: Any) -> None:
    async def main() -> None:
        async with listening(tmp_path, **socket_file) as agent, client(agent) as box:
            await works(box)
            assert os.stat(socket_file["unix"]).st_mode & 0o777 == 0o600  # noqa: PTH116

    asyncio.run(main())


def test_a_unix_socket_may_want_the_token_too(tmp_path: Path, socket_file: Any) -> None:
    async def main() -> None:
        async with listening(tmp_path, token=GOOD, **socket_file) as agent:
            async with client(agent) as box:
                await works(box)
            async with client(agent, token="not-the-token-of-this-agent") as stranger:
                with pytest.raises(NotPermitted, match="the token is wrong"):
                    await stranger.sessions()

    asyncio.run(main())


async def over_streams(home: Path) -> tuple[AgentBox, list[str]]:
    agent = Agent(home, streams=True)
    box = AgentBox("box", str(home / "workspace"), lambda: start.exec_streams(*agent.argv), {})
    return box, agent.argv


def test_streams_serve_their_one_peer(tmp_path: Path) -> None:
    async def main() -> None:
        box, _ = await over_streams(tmp_path)
        await works(box)
        noisy = await box.run("op-noise", shell("head -c 3000000 /dev/zero; echo more >&2"))
        assert (len(noisy.stdout), noisy.stderr) == (3_000_000, b"more\n")
        await box.close()

    asyncio.run(main())


def test_commands_cannot_reach_the_streams_of_the_agent(tmp_path: Path) -> None:
    """What a command writes to its parent's descriptors would otherwise be taken for frames."""

    async def main() -> None:
        box, _ = await over_streams(tmp_path)
        found = await box.run("op-fds", shell("ls /proc/self/fd; cat; echo loud >/proc/self/fd/1"))
        assert found.exit_code == 0
        assert b"loud" in found.stdout
        await works(box)
        await box.close()

    asyncio.run(main())


def test_an_agent_on_streams_ends_with_them(tmp_path: Path) -> None:
    async def main() -> None:
        box, argv = await over_streams(tmp_path)
        running = await box.run("op-sleep", shell("echo $$; sleep 600"), wait_s=0.2)
        while not running.stdout.strip():
            running = await box.run("op-sleep", shell(""), wait_s=0.2)
        pid = int(running.stdout)
        assert alive(pid)
        await box.close()
        while alive(pid):
            await asyncio.sleep(0.01)
        again = AgentBox("box", box.root, lambda: start.exec_streams(*argv), {})
        ended = await again.run("op-sleep", shell("echo twice"))
        assert (ended.state, ended.stdout) == ("lost", running.stdout)
        await again.close()

    asyncio.run(main())


def test_a_relay_reaches_an_agent_that_outlives_it(tmp_path: Path, socket_file: Any) -> None:
    """A host that can only execute programs in a box: one execution for each connection."""

    async def main() -> None:
        async with listening(tmp_path, token=GOOD, **socket_file) as agent:
            relay = start.relay_command(agent=str(agent.file), python=sys.executable, **socket_file)

            def box() -> AgentBox:
                connect = lambda: start.exec_streams(*relay)  # noqa: E731
                return AgentBox("box", str(tmp_path / "workspace"), connect, {}, GOOD)

            first = box()
            begun = await first.run(
                "op-long", shell("read line; echo $line", keep_stdin=True), wait_s=0
            )
            assert begun.state == "running"
            await first.close()
            second = box()
            await second.interact("op-say", begun.session, b"hello\n", wait_s=0)
            ended = await second.run("op-long", shell("echo never"))
            assert (ended.state, ended.exit_code) == ("exited", 0)
            await works(second)
            await second.close()

    asyncio.run(main())


# --- peers that must not get in -------------------------------------------------------------------


def test_tcp_does_not_start_without_a_token(tmp_path: Path) -> None:
    for token in ("", "short"):
        agent = Agent(tmp_path, tcp="127.0.0.1:0")
        env = {start.TOKEN: token} if token else {}
        done = subprocess.run(agent.argv, env=env, capture_output=True, timeout=30, check=False)
        assert done.returncode == 1
        assert b"needs a token of at least 16 characters" in done.stderr
        assert done.stdout == b""


def test_the_token_is_not_where_commands_can_read_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with listening(tmp_path, **TCP) as agent, client(agent) as box:
            assert agent.process is not None
            pid = agent.process.pid
            seen = await box.run("op-env", shell(f"env; tr '\\0' ' ' < /proc/{pid}/cmdline"))
            assert GOOD.encode() not in seen.stdout

    asyncio.run(main())


HELLO = {"id": 1, "do": "hello"}
STRANGERS = {
    "no token": (wire.encode({"id": 1, "do": "sessions"}, 0), "wants a token first"),
    "an empty token": (wire.encode({**HELLO, "token": ""}, 0), "the token is wrong"),
    "a wrong token": (wire.encode({**HELLO, "token": GOOD[:-1]}, 0), "the token is wrong"),
    "a longer token": (wire.encode({**HELLO, "token": GOOD + "x"}, 0), "the token is wrong"),
    "no text": (wire.encode({**HELLO, "token": [GOOD]}, 0), "wants a token first"),
    "no ASCII": (wire.encode({**HELLO, "token": "é\udcff" * 9}, 0), "the token is wrong"),
    "garbage": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not a frame with lengths"),
    "no JSON": (wire.LENGTHS.pack(4, 0) + b"\xff\xfe{}", "not a header that is not JSON"),
    "an oversized frame": (wire.LENGTHS.pack(60_000_000, 0) + b"x" * 300_000, "60000000 bytes"),
    "an oversized payload": (wire.encode(HELLO, 900_000_000) + b"x" * 100, "bytes"),
    "a request behind a wrong token": (
        wire.encode({**HELLO, "token": "x"}, 0)
        + wire.encode({"id": 2, "do": "run", "op": "evil", "spec": {"argv": ["true"]}}, 0),
        "the token is wrong",
    ),
}


def test_strangers_are_told_why_and_cut_off(tmp_path: Path) -> None:
    async def main() -> None:
        async with listening(tmp_path, **TCP) as agent, client(agent) as box:
            for who, (sent, why) in STRANGERS.items():
                assert why in await refusal(agent, sent), who
            assert not [*(tmp_path / "jobs").glob("*evil*")]
            await works(box)
            assert b"evil" not in (tmp_path / "jobs" / "=journal").read_bytes()

    asyncio.run(main())


def test_the_client_says_that_its_token_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with listening(tmp_path, **TCP) as agent:
            async with client(agent, token="x" * 40) as box:
                with pytest.raises(NotPermitted, match="the token is wrong"):
                    await box.sessions()
            async with client(agent, token="") as box:
                with pytest.raises(BoxGone):
                    await box.sessions()

    asyncio.run(main())


def test_slow_peers_make_room_for_others(tmp_path: Path) -> None:
    """More of them than may wait, each with half a frame: the one that waited longest goes."""

    async def main() -> None:
        async with listening(tmp_path, **TCP) as agent:
            slow = []
            for _ in range(entrance.MOST_WAITING + 3):
                reader, writer = await agent.connect()
                writer.write(struct.pack(">I", 200))
                slow.append((reader, writer))
            for reader, _ in slow[:3]:
                said = await answer(reader)
                assert "too many peers" in said["error"]["message"]
            async with client(agent) as box:
                await works(box)
            for _, writer in slow:
                writer.close()

    asyncio.run(main())


def test_refused_peers_that_do_not_leave_are_thrown_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with listening(tmp_path, **TCP) as agent:
            assert agent.process is not None
            writers = []
            for _ in range(6 * entrance.MOST_WAITING):
                _, writer = await agent.connect()
                writer.write(wire.encode({**HELLO, "token": "wrong"}, 0))
                writers.append(writer)
            async with client(agent) as box:
                await works(box)
                assert open_files(agent.process.pid) < 3 * entrance.MOST_WAITING
            for writer in writers:
                writer.close()

    asyncio.run(main())


def test_a_slow_peer_costs_no_time_of_others(tmp_path: Path) -> None:
    """A peer that floods the agent with a frame that it may not send, and reads nothing."""

    async def main() -> None:
        async with listening(tmp_path, **TCP) as agent, client(agent) as box:
            await works(box)
            _, flood = await agent.connect()
            flood.write(wire.LENGTHS.pack(60_000_000, 0) + b"x" * 30_000_000)
            before = time.monotonic()
            assert await box.sessions() == 0
            assert time.monotonic() - before < 5
            assert agent.process is not None
            assert resident_kb(agent.process.pid) < 60_000
            flood.close()

    asyncio.run(main())


@pytest.mark.timeout(60)
def test_a_silent_peer_is_cut_off(tmp_path: Path) -> None:
    async def main() -> None:
        async with listening(tmp_path, **TCP) as agent:
            begun = time.monotonic()
            assert "did not come within 10 s" in await refusal(agent, b"")
            assert time.monotonic() - begun >= entrance.HELLO_S - 0.5

    asyncio.run(main())
