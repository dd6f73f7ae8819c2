"""Makes a box and a neighbour, runs the attacks in the box, and says what came of it:
``python besieged.py HOME ISOLATION [ATTEMPT...]``. A program of its own, so that another user can
run it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from sandstream_providers.interface import Box, BoxSpec, ExecSpec, Limits, Output
from sandstream_providers.local import LocalProvider
from sandstream_providers.local.records import Layout

SECRET = "in-the-hosts-environment"
LIMITS = Limits(processes=20, memory_mb=500, file_mb=5)
"""So many processes of an interpreter fit into so much memory, each counted on its own."""


async def main(home: Path, isolation: str, only: list[str]) -> None:
    provider = LocalProvider(home, isolation="none" if isolation == "none" else "required")
    try:
        await besiege(provider, home, isolation, only)
    finally:
        for key in ("box", "neighbour"):
            await provider.delete(key)
        await provider.close()


async def besiege(provider: LocalProvider, home: Path, isolation: str, only: list[str]) -> None:
    found = await provider.check()
    secret_file = home.parent / "secret.txt"
    secret_file.write_text("secret")
    abstract = f"sandstream-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as named:
        named.bind("\0" + abstract)
        named.listen()
        greeting = [asyncio.create_task(_greet(server)) for server in (listener, named)]
        neighbour = await provider.create(BoxSpec(key="neighbour", labels={"owner": "tests"}))
        await neighbour.run(
            "seed", ExecSpec(argv=["sh", "-c", "echo mine > file"], cwd=neighbour.root)
        )
        box = await provider.create(BoxSpec(key="box", labels={"owner": "tests"}, limits=LIMITS))
        record = Layout(home).read("neighbour")
        socket_of_neighbour = "" if record is None else record.socket
        facts = {
            "only": only,
            "secret": SECRET,
            "secret_file": str(secret_file),
            "home": str(home),
            "neighbour_file": str(Layout(home).workspace("neighbour") / "file"),
            "agent_socket": socket_of_neighbour,
            "script": Path(__file__).name,
            "port": listener.getsockname()[1],
            "abstract": abstract,
            "pid": os.getpid(),
            "processes": LIMITS.processes,
            "memory_mb": LIMITS.memory_mb,
            "file_mb": LIMITS.file_mb,
        }
        output = await _attack(box, facts)
        assert output.stdout, output
        attempts = json.loads(output.stdout)
        if isolation != "none":  # this one may end the whole command
            greedy = await _attack(box, facts | {"only": ["take_much_memory"]})
            killed = {"take_much_memory": {"refused": f"killed: {greedy.killed}"}}
            attempts |= killed if greedy.killed else json.loads(greedy.stdout)
        everything = ExecSpec(argv=["sh", "-c", "kill -9 -1"], cwd=box.root)
        if isolation != "none":
            await box.run("kill all", everything, wait_s=20)
        after = await box.run("after", ExecSpec(argv=["echo", "still here"], cwd=box.root))
        print(
            json.dumps(
                {
                    "check": found,
                    "attempts": attempts,
                    "errors": output.stderr.decode(),
                    "after": after.stdout.decode(),
                }
            )
        )
        for task in greeting:
            task.cancel()
        await asyncio.wait(greeting)


async def _attack(box: Box, facts: dict[str, Any]) -> Output:
    source = (Path(__file__).parent / "attacks.py").read_bytes()
    argv = ["/usr/bin/python3", "-", json.dumps(facts)]
    spec = ExecSpec(argv=argv, cwd=box.root, stdin=source)
    return await box.run(f"attack {facts['only']}", spec)


async def _greet(server: socket.socket) -> None:
    server.setblocking(False)
    loop = asyncio.get_running_loop()
    while True:
        connection, _ = await loop.sock_accept(server)
        await loop.sock_sendall(connection, b"welcome")
        connection.close()


asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
