"""Ports through sessions: a declared one has a URL that answers."""

from __future__ import annotations

import asyncio
import socket

import pytest
from contract.sessions import SessionStage, refused, said, write
from vendors.visitor import visit

from sandstream.sandbox.errors import ExposedPortUnavailableError


def _free_port() -> int:
    """Without isolation the box's port is the host's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.needs("ports")
def test_a_server_in_a_sandbox_answers(sessions: SessionStage) -> None:
    async def story() -> None:
        port = _free_port()
        options = sessions.options(exposed_ports=(port,))
        async with sessions.fresh(options=options) as session:
            assert session.state.exposed_ports == (port,)
            await write(session, "page.html", b"hello from inside")
            endpoint = await session.resolve_exposed_port(port)
            url = endpoint.url_for("http") + "page.html"
            serve = f"nohup python3 -m http.server --bind 127.0.0.1 {port} >/dev/null 2>&1 &"
            await said(session, serve)
            async with asyncio.timeout(30):
                while True:
                    try:
                        found = await asyncio.to_thread(visit, url)
                        break
                    except ConnectionError:
                        await asyncio.sleep(0.05)  # it does not listen yet
            assert found == b"hello from inside"

    sessions.run(story())


def test_an_undeclared_port(sessions: SessionStage) -> None:
    async def story() -> None:
        session = await sessions.shared()
        with refused(
            ExposedPortUnavailableError,
            "exposed_port_unavailable",
            port=8123,
            exposed_ports=[],
            reason="not_configured",
        ):
            await session.resolve_exposed_port(8123)

    sessions.run(story())
