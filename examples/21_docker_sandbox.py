"""An agent in a container: the same agent, another client. The work goes on in a second image.

    python examples/21_docker_sandbox.py
    SANDBOX_IMAGE=node:22-bookworm-slim python examples/21_docker_sandbox.py

It needs a Docker engine (DOCKER_HOST, or the default socket) and the package: `pip install
'sandstream[docker]'`. Any image with a shell will do. The containers are removed at the end.

Or from the command line:

    sandstream run examples/21_docker_sandbox.py "Sort it" --sandbox docker --image busybox
"""

from __future__ import annotations

import asyncio
import os

from offline import model_or_script

from sandstream import RunConfig, Runner, ToolCallOutputItem
from sandstream.sandbox import File, Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.errors import ProviderUnavailableError
from sandstream.sandbox.sandboxes import DockerSandboxClient, DockerSandboxClientOptions
from sandstream.testing import text, tool_call

IMAGE = os.environ.get("SANDBOX_IMAGE", "python:3.13-slim")
GUESTS = Manifest(entries={"guests.txt": File(content=b"Mary\nAda\nGrace\n")})

host = SandboxAgent(
    name="host",
    instructions="Keep the list of guests in guests.txt. Answer in one sentence.",
    default_manifest=GUESTS,
)
SCRIPT = [
    tool_call("exec_command", {"cmd": "sort -o guests.txt guests.txt && cat guests.txt"}),
    text("Three guests, sorted by name."),
]


async def main() -> None:
    client = DockerSandboxClient()
    options = DockerSandboxClientOptions(IMAGE, network_mode="none", limits={"memory_mb": 512})
    session = await client.create(manifest=GUESTS, options=options)
    try:
        async with session:
            print(f"a container of {IMAGE}")
            result = await Runner.run(
                host, "Sort it.", run_config=RunConfig(sandbox=SandboxRunConfig(session=session))
            )
            for item in result.new_items:
                if isinstance(item, ToolCallOutputItem):
                    print(f"--- what a command said\n{item.output}")
            print(f"--- the answer\n{result.final_output}")
            found = await session.exec("echo 'no network:' $(ls /sys/class/net)")
            print(f"--- inside\n{found.stdout.decode().strip()}")
        # the container is gone, and the workspace is saved: it goes on in a new one
        resumed = await client.resume(session.state)
        async with resumed:
            guests = await resumed.read("guests.txt")
            print(f"--- in the next container\n{guests.read().decode()}")
    finally:
        await client.delete(session)


if __name__ == "__main__":
    with model_or_script(*SCRIPT):
        try:
            asyncio.run(main())
        except ProviderUnavailableError as error:
            raise SystemExit(f"there are no Docker sandboxes here: {error}") from None
