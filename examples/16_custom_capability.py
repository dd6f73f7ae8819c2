"""Your own capability: a tool that is bound to the agent's live sandbox.

python examples/16_custom_capability.py
"""

from __future__ import annotations

import asyncio
import urllib.request

from offline import model_or_script

from sandstream import RunConfig, Runner, Tool, function_tool
from sandstream.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Shell
from sandstream.sandbox.capabilities.capability import Capability
from sandstream.sandbox.entries import File
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient, UnixLocalSandboxClientOptions
from sandstream.testing import text, tool_call

PORT = 8080


class Preview(Capability):
    """Lets the agent see what it serves, as visitors do."""

    type: str = "preview"

    def tools(self) -> list[Tool]:
        session = self.session

        @function_tool
        async def look_at(port: int) -> str:
            """What a visitor of this port sees."""
            endpoint = await session.resolve_exposed_port(port)
            url = endpoint.url_for("http")
            return await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())

        return [look_at]


agent = SandboxAgent(
    name="Web clerk",
    instructions="Serve the workspace on port 8080, then look at it.",
    default_manifest=Manifest(entries={"index.html": File(content=b"<h1>Open on Sunday</h1>")}),
    capabilities=[Shell(), Preview()],
)

SERVE = (
    f"python3 -m http.server {PORT} >/dev/null 2>&1 & "
    f"until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {PORT}))' "
    "2>/dev/null; do sleep 0.1; done; echo serving"
)
SCRIPT = [
    tool_call("exec_command", {"cmd": SERVE}),
    tool_call("look_at", {"port": PORT}),
    text("Visitors read that we are open on Sunday."),
]


async def main() -> None:
    client = UnixLocalSandboxClient()
    options = UnixLocalSandboxClientOptions(exposed_ports=(PORT,))
    result = await Runner.run(
        agent,
        "What do visitors see?",
        run_config=RunConfig(sandbox=SandboxRunConfig(client=client, options=options)),
    )
    for item in result.new_items:
        if item.type == "tool_call_output_item":
            print(item.output.splitlines()[-1])
    print(result.final_output)
    await client.close()


if __name__ == "__main__":
    with model_or_script(*SCRIPT):
        asyncio.run(main())
