"""Sessions at a vendor: when their box is made, paused, found again and replaced. The vendor is a
toy that is served under the name of Daytona.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from actors.sandbox.vendor_yard import NEW, OLD, VendorYard, vendor_id, vendor_yard
from sandstream_actors.sandbox.actor import SandboxActor
from sandstream_bus.wire.sandboxes import SandboxReady
from sandstream_providers.registry import ProviderEntry
from support.nats_server import NatsServer
from support.waiting import until

from sandstream._run.sandbox_host import start_sandbox_actor
from sandstream.extensions.sandbox import (
    DaytonaSandboxClient,
    DaytonaSandboxClientOptions,
    DaytonaSandboxSessionState,
)
from sandstream.sandbox import File, Manifest
from sandstream.sandbox.environment import Environment
from sandstream.sandbox.session.events import SandboxSessionEvent
from sandstream.sandbox.session.link import BusLink
from sandstream.sandbox.session.manager import Instrumentation
from sandstream.sandbox.session.sandbox_session import SandboxSession
from sandstream.sandbox.session.sinks import CallbackSink

MANIFEST = Manifest(
    entries={
        "given.txt": File(content=b"given\n"),
        "token.txt": File(content=b"token\n", ephemeral=True),
    },
    environment=Environment(value={"B": "manifest"}),
)
OPTIONS = DaytonaSandboxClientOptions(env_vars={"A": "option", "B": "option"})
KEPT = OPTIONS.model_copy(update={"pause_on_exit": True})


def play(server: NatsServer, home: Path, plot: Callable[[VendorYard], Awaitable[None]]) -> None:
    async def main() -> None:
        async with vendor_yard(server, home, "daytona") as it:
            await plot(it)

    asyncio.run(main())


async def client_of(it: VendorYard, actor: SandboxActor, **more: Any) -> DaytonaSandboxClient:
    """A client of a program whose sandboxes this actor serves."""
    client = DaytonaSandboxClient(**more)
    client._link = BusLink(await it.bus(), "daytona", actor.node)  # type: ignore[assignment]
    return client


async def text(session: SandboxSession, command: str) -> str:
    done = await session.exec(command)
    return (done.stdout + done.stderr).decode().strip()


def test_the_box_is_there_as_soon_as_the_session_is_created(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def plot(it: VendorYard) -> None:
        events: list[SandboxSessionEvent] = []
        sink = CallbackSink(lambda event, _: events.append(event))
        client = await client_of(
            it, await it.actor(OLD), instrumentation=Instrumentation(sinks=[sink])
        )
        session = await client.create(manifest=MANIFEST, options=OPTIONS)
        (key,) = it.host.billed()
        assert session.state.sandbox_id == session.sandbox_id == vendor_id(key)
        assert session.bus_name != session.sandbox_id
        last = (await session.remote.record()).last_seq
        await session.start()
        assert (await session.remote.record()).last_seq == last
        async with session:
            assert await text(session, "cat given.txt; echo $A $B") == "given\noption manifest"
        assert session.state.sandbox_id == vendor_id(key)
        await until(lambda: it.host.billed() == [])
        starts = [event for event in events if (event.op, event.phase) == ("start", "start")]
        assert len(starts) == 2, "one for each call of start()"

    play(nats_server, tmp_path, plot)


def test_a_session_that_is_paused_at_its_end_is_continued_in_the_same_box(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """By another program, after the first one has ended."""

    async def plot(it: VendorYard) -> None:
        first = await it.actor(OLD)
        client = await client_of(it, first)
        session = await client.create(manifest=MANIFEST, options=KEPT)
        saved = session.state.model_dump_json()
        (key,) = it.host.billed()
        async with session:
            await session.write("made.txt", io.BytesIO(b"made\n"))
        assert it.host.is_paused(key) and it.host.billed() == [key]
        assert not await session.running()
        await session.aclose()  # once more
        assert it.host.is_paused(key)
        await first.stop()
        assert it.host.is_paused(key) and it.host.billed() == [key]

        state = DaytonaSandboxSessionState.model_validate_json(saved)
        other = await client_of(it, await it.actor(NEW))
        (it.host.workspace(key) / "token.txt").unlink()
        resumed = await other.resume(state)
        assert resumed.state.sandbox_id == vendor_id(key), "reconnected"
        async with resumed:
            said = await text(resumed, "cat given.txt made.txt token.txt; echo $A $B")
            assert said == "given\nmade\ntoken\noption manifest"
        assert it.host.is_paused(key)
        await other.delete(resumed)
        await until(lambda: it.host.billed() == [])

    play(nats_server, tmp_path, plot)


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_session_whose_box_the_vendor_deleted_gets_another_one(
    nats_server: NatsServer, tmp_path: Path, is_saved: bool
) -> None:
    async def plot(it: VendorYard) -> None:
        client = await client_of(it, await it.actor(OLD))
        session = await client.create(manifest=MANIFEST, options=KEPT)
        await session.start()
        (key,) = it.host.billed()
        await session.write("made.txt", io.BytesIO(b"made\n"))
        if is_saved:
            await session.aclose()
        await it.host.delete(key)
        other = await client_of(it, await it.actor(NEW))
        if not is_saved:  # its program was killed
            session.remote.link = other.link
        state = DaytonaSandboxSessionState.model_validate_json(session.state.model_dump_json())
        resumed = await other.resume(state)
        (new,) = it.host.billed()
        assert state.sandbox_id == resumed.state.sandbox_id == vendor_id(new) != vendor_id(key)
        found = "given.txt\nmade.txt\ntoken.txt" if is_saved else "given.txt\ntoken.txt"
        assert await text(resumed, "ls; echo $A $B") == f"{found}\noption manifest"
        await other.delete(resumed)

    play(nats_server, tmp_path, plot)


def test_a_closed_session_is_restored_in_a_new_box(nats_server: NatsServer, tmp_path: Path) -> None:
    async def plot(it: VendorYard) -> None:
        client = await client_of(it, await it.actor(OLD))
        async with await client.create(manifest=MANIFEST, options=OPTIONS) as session:
            old = session.sandbox_id
            await session.write("made.txt", io.BytesIO(b"made\n"))
        resumed = await client.resume(session.state)
        assert resumed.sandbox_id not in ("", old)
        assert await text(resumed, "cat made.txt token.txt; echo $A") == "made\ntoken\noption"
        forked = await resumed.fork()
        assert (forked.state.sandbox_id, forked.bus_name != resumed.bus_name) == ("", True)
        async with forked:
            assert forked.state.sandbox_id not in ("", resumed.sandbox_id)
            assert await text(forked, "cat made.txt") == "made"
        second = resumed.sandbox_id
        await client.delete(resumed)
        again = await client.resume(session.state)
        assert again.sandbox_id not in ("", old, second)
        assert await text(again, "cat made.txt") == "made"
        await client.delete(again)

    play(nats_server, tmp_path, plot)


def test_a_session_notes_the_box_that_replaced_its_own(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def plot(it: VendorYard) -> None:
        actor = await it.actor(OLD)
        client = await client_of(it, actor)
        session = await client.create(manifest=MANIFEST, options=OPTIONS)
        await session.checkpoint()
        old = session.sandbox_id
        await it.host.delete((await session.remote.record()).key)
        assert (await session.read("given.txt")).read() == b"given\n"
        await session.shutdown()
        events = await actor._bus.sandboxes.read(session.bus_name)
        boxes = [it.event.box_id for it in events if isinstance(it.event, SandboxReady)]
        assert boxes[0] == old and session.state.sandbox_id == boxes[-1] != old

    play(nats_server, tmp_path, plot)


def test_a_port_has_the_address_that_the_vendor_gives(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def plot(it: VendorYard) -> None:
        client = await client_of(it, await it.actor(OLD))
        options = DaytonaSandboxClientOptions(exposed_ports=(8000,))
        session = await client.create(options=options)
        found = await session.resolve_exposed_port(8000)
        host = f"8000-{session.sandbox_id}.example.org"
        assert (found.host, found.port, found.tls, found.query) == (host, 443, True, "token=t")
        await client.delete(session)

    play(nats_server, tmp_path, plot)


@pytest.mark.parametrize("owns_boxes", [True, False])
def test_the_network_of_a_vendor_needs_no_permission(
    nats_server: NatsServer,
    tmp_path: Path,
    owns_boxes: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A deployed actor gives its own machine's network only if its operator allows it."""
    monkeypatch.setitem(
        _built_in(),
        "vendor",
        ProviderEntry(
            name="vendor",
            factory="actors.sandbox.vendor_yard:make",
            owns_boxes=owns_boxes,
        ),
    )

    async def plot(it: VendorYard) -> None:
        bus = await it.bus()
        actor = await start_sandbox_actor(bus, tmp_path / "home", provider="vendor")
        try:
            assert actor._sources.policy.network is not owns_boxes
            assert not actor._sources.policy.grants
            assert (actor.node == "shared") is not owns_boxes
            assert actor.lifecycle.owns_boxes is owns_boxes
        finally:
            await actor.stop()

    play(nats_server, tmp_path, plot)


def _built_in() -> dict[str, ProviderEntry]:
    from sandstream_providers import registry

    return registry._BUILT_IN
