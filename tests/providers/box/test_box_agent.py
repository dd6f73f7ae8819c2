"""The agent as a process: ports, garbage, its own protection, its end."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from providers.box.agent_process import alive, running_agent, shell, unprivileged
from sandstream_providers.box import package
from sandstream_providers.interface import ExecSpec, PortUnavailable


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


async def fetch(address: tuple[str, int], request: bytes) -> bytes:
    """Everything that comes back, after closing our half."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request)
        writer.write_eof()
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def test_a_server_inside_is_reached_from_outside(tmp_path: Path) -> None:
    async def main() -> None:
        port = free_port()
        async with running_agent(tmp_path, ports=[port]) as agent:
            box = agent.box()
            address = await box.port(port)
            with pytest.raises(PortUnavailable, match=str(port)):
                await box.port(1)
            assert await fetch(address, b"GET / HTTP/1.0\r\n\r\n") == b""  # nobody listens yet
            (agent.root / "page").write_bytes(bytes(3_000_000))
            listening = asyncio.Event()
            serve = ["python3", "-u", "-m", "http.server", str(port), "--bind", "127.0.0.1"]
            serving = asyncio.create_task(
                box.run(
                    "server",
                    ExecSpec(argv=serve, cwd=str(agent.root)),
                    on_output=lambda *_: listening.set(),
                )
            )
            await listening.wait()
            answers = await asyncio.gather(
                *(fetch(address, b"GET /page HTTP/1.0\r\n\r\n") for _ in range(5))
            )
            for answer in answers:
                assert answer.startswith(b"HTTP/1.0 200")
                assert answer.endswith(bytes(3_000_000))
            await box.kill("server")
            await serving

    asyncio.run(main())


def test_a_half_closed_connection_still_answers(tmp_path: Path) -> None:
    async def main() -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            data = await reader.read()
            writer.write(data[::-1])
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, running_agent(tmp_path, ports=[port]) as agent:
            data = os.urandom(2_000_000)
            assert await fetch(await agent.box().port(port), data) == data[::-1]

    asyncio.run(main())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        struct.pack(">II", 4, 0) + b"nope",
        struct.pack(">II", 2, 0) + b"[]",
        struct.pack(">II", 2, 0) + b"{}",
        struct.pack(">II", 0xFFFFFFFF, 0),
        struct.pack(">II", 10, 0) + b"{",
    ],
)
def test_garbage_closes_only_its_connection(tmp_path: Path, garbage: bytes) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            await box.sessions()
            fd = os.open(tmp_path, os.O_PATH)
            reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{fd}/agent.sock")
            os.close(fd)
            writer.write(garbage)
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
            assert await box.sessions() == 0

    asyncio.run(main())


def test_commands_inherit_none_of_its_descriptors(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path, ports=[free_port()]) as agent:
            box = agent.box()
            await box.run("other", shell("cat", keep_stdin=True), wait_s=0)
            listing = await box.run("op", ExecSpec(argv=["ls", "/proc/self/fd"], cwd="/"))
            assert listing.stdout == b"0\n1\n2\n3\n"  # 3 is the directory that ls reads

    asyncio.run(main())


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_commands_cannot_look_into_it(tmp_path: Path) -> None:
    config = unprivileged(tmp_path)

    async def main() -> None:
        async with running_agent(tmp_path, **config) as agent:
            output = await agent.box().run(
                "op", shell("id -u; ls /proc/$PPID/fd; cat /proc/$PPID/environ")
            )
            assert int(output.stdout) != 0
            assert output.stderr.count(b"Permission denied") == 2

    asyncio.run(main())


def test_it_reaps_orphans(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            assert agent.process is not None
            await box.run("op", shell("(sleep 0.05 &) ; true"))
            count = f"grep -l '^PPid:.{agent.process.pid}$' /proc/[0-9]*/status | wc -l"
            number = 0
            children = b""
            while children != b"1\n":  # the one that looks
                number += 1
                children = (await box.run(f"look-{number}", shell(count))).stdout

    asyncio.run(main())


def test_it_ends_with_its_maker_and_takes_all_along(tmp_path: Path) -> None:
    async def main() -> None:
        ours, theirs = os.pipe()
        async with running_agent(tmp_path, death_fd=ours) as agent:
            os.close(ours)
            box = agent.box()
            file = agent.root / "pid"
            script = f"setsid sh -c 'echo $$ > {file}; exec sleep 999' & "
            script += f"while ! test -s {file}; do sleep 0.01; done"
            await box.run("op", shell(script))
            os.close(theirs)
            assert agent.process is not None
            assert await asyncio.to_thread(agent.process.wait) == 0
            assert not alive(int(file.read_text()))

    asyncio.run(main())


def test_only_so_many_records_are_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            journal = agent.jobs / "=journal"
            claims = [{"op": f"old-{n}", "what": "claim", "state": "exited"} for n in range(7000)]
            agent.kill()
            journal.write_text("".join(json.dumps(claim) + "\n" for claim in claims) + '{"cut o')
            (agent.jobs / "old-1.out").write_text("said")
            agent.start()
            assert (await box.run("new", shell("exit 1"))).exit_code == 1
            assert await box.sessions() == 0  # answered after the cleaning up
            assert len({line for line in journal.read_text().split("\n") if line}) == 999 + 3
            assert not (agent.jobs / "old-1.out").exists()
            agent.kill()
            agent.start()
            assert (await box.run("new", shell("exit 2"))).exit_code == 1
            assert (await box.run("old-6999", shell("exit 3"))).exit_code is None

    asyncio.run(main())


def test_the_source_suits_old_pythons() -> None:
    folder = Path(package.__file__).parent / "agent"
    for file in folder.rglob("*.py"):
        ast.parse(file.read_text(), file.name, feature_version=(3, 8))


def test_other_byte_code_is_ignored(tmp_path: Path) -> None:
    """Another Python uses the sources in the archive; here, by a number that no Python has."""
    file = tmp_path / "agent.pyz"
    file.write_bytes(package.agent_source().replace(importlib.util.MAGIC_NUMBER, b"\x01\x02\r\n"))
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(file), "not json"], capture_output=True, check=False
    )
    assert b"JSONDecodeError" in done.stderr
