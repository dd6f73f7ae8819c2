"""A sandbox without an agent: commands, a terminal, a port, snapshots and a fork.

    python examples/10_sandbox_session.py

The session is an object of this program; an actor keeps the sandbox behind it. If this program is
killed, another program with the session's state can continue in the same workspace.
"""

from __future__ import annotations

import asyncio
import json
from urllib.request import urlopen

from sandstream.sandbox import File, Manifest
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient, UnixLocalSandboxClientOptions
from sandstream.sandbox.session import SandboxSession

PAGE = Manifest(entries={"site/index.html": File(content=b"<h1>Hello from a sandbox</h1>\n")})
ASK = "printf 'Your name? '; read name; echo Hello, $name, on $(tty)"
IS_UP = """\
until python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8000))' 2>/dev/null
do sleep 0.1; done"""


async def main() -> None:
    client = UnixLocalSandboxClient()
    options = UnixLocalSandboxClientOptions(exposed_ports=(8000,))
    session = await client.create(manifest=PAGE, options=options)
    async with session:
        await commands(session)
        await terminal(session)
        await port(session)

    # leaving the session saved its workspace; the state is enough to resume it
    saved = json.dumps(client.serialize_session_state(session.state))
    fork = await client.create(snapshot=session.state.snapshot)
    async with fork:
        await fork.exec("echo changed in the fork > notes.txt")
    state = client.deserialize_session_state(json.loads(saved))
    resumed = await client.resume(state)
    async with resumed:
        notes = await resumed.read("notes.txt")
        print("after the fork:   ", notes.read().decode().strip())
    for each in (fork, resumed):
        await client.delete(each)


async def commands(session: SandboxSession) -> None:
    done = await session.exec("id -un; pwd; ls -R site | tail -1")
    print("a command:        ", done.stdout.decode().split())
    failed = await session.exec("cat /etc/shadow")
    print("what it may not:  ", failed.exit_code, failed.stderr.decode().strip())
    await session.exec("echo written in the first session > notes.txt")


async def terminal(session: SandboxSession) -> None:
    asked = await session.pty_exec_start(ASK, tty=True, yield_time_s=0.5)
    assert asked.process_id is not None  # it waits for input
    said = await session.pty_write_stdin(
        session_id=asked.process_id, chars="Ada\n", yield_time_s=10
    )
    print("a terminal:       ", (asked.output + said.output).decode().splitlines())


async def port(session: SandboxSession) -> None:
    await session.pty_exec_start("python3 -m http.server 8000 --directory site", yield_time_s=0.25)
    await session.exec(IS_UP, timeout=20)
    endpoint = await session.resolve_exposed_port(8000)
    page = await asyncio.to_thread(lambda: urlopen(endpoint.url_for("http")).read())
    print("a page, outside:  ", page.decode().strip())


if __name__ == "__main__":
    asyncio.run(main())
