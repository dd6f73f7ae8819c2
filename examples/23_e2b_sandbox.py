"""A workspace of this machine moves to E2B, where a page of it is served, and comes back.

    export E2B_API_KEY=…                                from E2B's dashboard
    python examples/23_e2b_sandbox.py

It needs an account at E2B, the package (`pip install 'sandstream[e2b]'`), and bubblewrap for the
sandboxes of this machine. The box at E2B is removed when its session closes.

Or from the command line, all of it at E2B:

    sandstream run examples/23_e2b_sandbox.py "Write a page" --sandbox e2b
"""

from __future__ import annotations

import asyncio
import urllib.request
from typing import Any

from offline import model_or_script

from sandstream import RunConfig, Runner, Tool, function_tool
from sandstream.extensions.sandbox import E2BSandboxClient, E2BSandboxClientOptions
from sandstream.sandbox import File, Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Shell
from sandstream.sandbox.capabilities.capability import Capability
from sandstream.sandbox.errors import ProviderUnavailableError
from sandstream.sandbox.sandboxes import UnixLocalSandboxClient
from sandstream.testing import text, tool_call

PORT = 8080
PAPER = Manifest(entries={"news.txt": File(content=b"The bakery opens on Sunday.\n")})


class Visitor(Capability):
    """Lets the agent see a port as the rest of the world does."""

    type: str = "visitor"

    def tools(self) -> list[Tool]:
        session = self.session

        @function_tool
        async def visit(port: int) -> str:
            """What visitors of this port read."""
            endpoint = await session.resolve_exposed_port(port)
            url = endpoint.url_for("http")
            return await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())

        return [visit]


printer = SandboxAgent(
    name="printer",
    instructions="Turn news.txt into index.html; serve it on port 8080 when asked, and visit it.",
    default_manifest=PAPER,
    capabilities=[Shell(), Visitor()],
)
SERVE = (
    f"python3 -m http.server {PORT} >/dev/null 2>&1 & "
    f"until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {PORT}))' "
    "2>/dev/null; do sleep 0.1; done; echo serving"
)
SCRIPT = [
    tool_call("exec_command", {"cmd": 'echo "<h1>$(cat news.txt)</h1>" > index.html'}),
    text("The page is written."),
    tool_call("exec_command", {"cmd": SERVE}),
    tool_call("visit", {"port": PORT}),
    text("Visitors read of the bakery."),
]


async def turn(session: Any, conversation: list[Any], question: str) -> list[Any]:
    """Ask the agent in this session; the whole conversation so far."""
    result = await Runner.run(
        printer,
        [*conversation, {"role": "user", "content": question}],
        run_config=RunConfig(sandbox=SandboxRunConfig(session=session)),
    )
    for item in result.new_items:
        if item.type == "tool_call_output_item":
            print("  ", item.output.splitlines()[-1])
    print(result.final_output)
    return result.to_input_list()


async def main() -> None:
    here = UnixLocalSandboxClient()
    async with E2BSandboxClient() as there:
        draft = await here.create(manifest=PAPER)
        async with draft:
            print("--- on this machine")
            conversation = await turn(draft, [], "Write the page.")
            await draft.checkpoint()
        options = E2BSandboxClientOptions("e2b", exposed_ports=(PORT,))
        site = await there.create(manifest=PAPER, snapshot=draft.state.snapshot, options=options)
        async with site:
            print("--- at E2B")
            await turn(site, conversation, "Serve it, and look.")
            await site.exec("date > served.txt")
        back = await here.create(manifest=PAPER, snapshot=site.state.snapshot)
        async with back:
            names = sorted(str(it.path).rpartition("/")[2] for it in await back.ls("."))
            print("--- on this machine again\n  ", *names)
        for session in (draft, back):
            await here.delete(session)
        await there.delete(site)


if __name__ == "__main__":
    with model_or_script(*SCRIPT):
        try:
            asyncio.run(main())
        except ProviderUnavailableError as error:
            raise SystemExit(f"there are no sandboxes at E2B here: {error}") from None
