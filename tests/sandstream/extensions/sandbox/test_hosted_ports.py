"""A capability of the user's own that shows what an agent serves in a sandbox at a vendor."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.vendor_side import VendorSide, outputs, run_command
from vendors.visitor import visit

from sandstream import Runner
from sandstream.run import RunConfig
from sandstream.sandbox import SandboxAgent, SandboxRunConfig
from sandstream.sandbox.capabilities import Shell
from sandstream.sandbox.capabilities.capability import Capability
from sandstream.sandbox.entries import File
from sandstream.sandbox.errors import ExposedPortUnavailableError
from sandstream.testing import ScriptedModel, text, tool_call
from sandstream.tool import Tool, function_tool

PORT = 8137
SERVE = (
    f"python3 -m http.server {PORT} >/dev/null 2>&1 & "
    f"until python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {PORT}))' "
    "2>/dev/null; do sleep 0.1; done; echo serving"
)


class Address(Capability):
    type: str = "address"

    def tools(self) -> list[Tool]:
        session = self.session

        @function_tool
        async def get_url(port: int) -> str:
            """The public address of a port."""
            endpoint = await session.resolve_exposed_port(port)
            url: str = endpoint.url_for("http")
            return url

        @function_tool
        async def look_at(port: int) -> str:
            """What visitors of a port see."""
            endpoint = await session.resolve_exposed_port(port)
            return (await asyncio.to_thread(visit, endpoint.url_for("http"))).decode()

        return [get_url, look_at]


def test_the_address_of_a_declared_port_answers(
    vendor: VendorSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program() -> Any:
        agent = SandboxAgent(
            name="Web clerk",
            instructions="Serve the workspace.",
            default_manifest=vendor.manifest(
                **{"index.html": File(content=b"<h1>Open on Sunday</h1>")}
            ),
            capabilities=[Shell(), Address()],
        )
        steps = [
            run_command(SERVE),
            tool_call("get_url", {"port": PORT}),
            tool_call("look_at", {"port": PORT}),
            text("They read that we are open."),
        ]
        client = vendor.client()
        async with ScriptedModel(steps) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            result = await Runner.run(
                agent,
                "What do visitors see?",
                run_config=RunConfig(
                    sandbox=SandboxRunConfig(
                        client=client, options=vendor.options(exposed_ports=(PORT,))
                    )
                ),
            )
        await client.close()
        return outputs(result)

    served, url, seen = asyncio.run(program())
    assert served.endswith("serving\n") and seen == "<h1>Open on Sunday</h1>"
    assert url.startswith("http://")


def test_a_port_that_was_not_declared(vendor: VendorSide) -> None:
    async def program() -> None:
        client = vendor.client()
        session = await client.create(options=vendor.options(exposed_ports=(PORT,)))
        async with session:
            with pytest.raises(ExposedPortUnavailableError) as caught:
                await session.resolve_exposed_port(PORT + 1)
            assert caught.value.context["exposed_ports"] == [PORT]
        await client.close()

    asyncio.run(program())
