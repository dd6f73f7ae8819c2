"""Boxes are removed, found again and paused as their sandboxes' logs say, whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from actors.sandbox.yard import NODE, yard
from sandstream_actors.sandbox.actor import installation_of
from sandstream_actors.sandbox.calls import RunCalls
from sandstream_actors.sandbox.lifecycle import Lifecycle
from sandstream_actors.sandbox.news import IDLE
from sandstream_actors.sandbox.operations import Tools
from sandstream_bus.logs.sandboxes import SandboxMovedOn
from sandstream_bus.wire.messages import CallRequested
from sandstream_bus.wire.sandboxes import SandboxSpec
from sandstream_bus.wire.subjects import RunId
from sandstream_providers.local.provider import LocalProvider
from sandstream_workspaces.store import WorkspaceStore
from support.nats_server import NatsServer
from support.waiting import until


def test_a_closed_box_is_removed_though_the_event_loop_ends(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            bus = await it.bus()
            provider = LocalProvider(it.home)
            owner = await installation_of(bus)
            store = WorkspaceStore(bus)
            lifecycle = Lifecycle(bus, provider, store, node=NODE, owner=owner)
            await lifecycle.open("one", SandboxSpec())
            record = await lifecycle.record("one")
            assert it.box(record).is_dir()
            await lifecycle.close("one", checkpoint=False, delete=False)
            for task in lifecycle._removals._tasks:
                task.cancel()  # as asyncio.run() does with all tasks at its end
            await lifecycle.stop()
            assert not it.box(record).exists()
            await provider.close()

    asyncio.run(story())


def test_a_late_repeat_of_a_close_does_not_close_what_was_opened_since(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """A killed server delivers a request to two replicas: the slower one comes after the reply."""

    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            bus = await it.bus()
            provider = LocalProvider(it.home)
            owner = await installation_of(bus)
            lifecycle = Lifecycle(bus, provider, WorkspaceStore(bus), node=NODE, owner=owner)
            await lifecycle.open("one", SandboxSpec())
            asked_at = (await lifecycle.record("one")).last_seq
            options: Any = {"checkpoint": False, "delete": False}
            await lifecycle.close("one", **options, asked_at=asked_at)
            await lifecycle.open("one", None)
            await lifecycle.close("one", **options, asked_at=asked_at)
            record = await lifecycle.record("one")
            assert (record.state, record.generation) == ("ready", 2)
            assert it.box(record).is_dir()
            await lifecycle.close("one", **options, asked_at=record.last_seq)
            assert (await lifecycle.record("one")).state == "stopped"
            await lifecycle.stop()
            await provider.close()

    asyncio.run(story())


@pytest.mark.parametrize("kind", ["checkpoint", "tool"])
def test_a_late_repeat_of_a_call_does_not_open_what_its_run_has_closed(
    nats_server: NatsServer, tmp_path: Path, kind: Any
) -> None:
    """The other replica was quicker: the call has its result, the run has gone on to its end."""

    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            bus = await it.bus()
            provider, store = LocalProvider(it.home), WorkspaceStore(bus)
            owner = await installation_of(bus)
            lifecycle = Lifecycle(bus, provider, store, node=NODE, owner=owner)
            calls = RunCalls(bus, Tools(lifecycle=lifecycle, provider=provider, store=store))
            await lifecycle.open("one", SandboxSpec(run="r1"))
            asked_at = (await lifecycle.record("one")).last_seq
            await lifecycle.close("one", checkpoint=True, delete=False)
            closed = await lifecycle.record("one")
            call = CallRequested(
                call="t1-0",
                kind=kind,
                turn=1,
                agent="a",
                name="exec_command",
                arguments='{"cmd": "true"}',
                reply_pool="main",
                sandbox="one",
            )
            run = RunId("r1")
            finished = await calls.do(run, call, sequence=asked_at, fresh=False, time_ns=0)
            if kind == "checkpoint":
                assert msgspec.json.decode(finished.output)["tree"] == closed.tree
            else:
                assert finished.error is not None and finished.error.code == "outcome_unknown"
            record = await lifecycle.record("one")
            assert (record.state, record.last_seq) == ("stopped", closed.last_seq)
            again = closed.last_seq + 1
            later = await calls.do(run, call, sequence=again, fresh=True, time_ns=0)
            assert later.error is None, "what is asked after the close is meant"
            assert (await lifecycle.record("one")).state == "ready"
            await lifecycle.close("one", checkpoint=False, delete=True)
            await lifecycle.stop()
            await provider.close()

    asyncio.run(story())


def test_a_paused_sandbox_whose_processes_died_is_found_again(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            await it.actor()
            session = await it.session()
            await session.start()
            assert (await session.exec("echo kept > kept")).ok()
            await session.pause()
            it.kill_box(await session.remote.record())
            assert (await session.exec("cat kept")).stdout == b"kept\n"

    asyncio.run(story())


def test_a_sandbox_is_not_idle_while_a_command_runs(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            actor = await it.actor()
            session = await it.session(idle_s=0.0)
            await session.start()
            command = asyncio.create_task(session.exec("mkfifo go; touch begun; cat go"))
            record = await session.remote.record()
            workspace = it.box(record) / "workspace"
            while not (workspace / "begun").exists():
                await asyncio.sleep(0.01)
            assert actor.lifecycle.idle(float("inf")) == []
            assert (await session.exec("echo now > go")).ok()
            assert (await command).stdout == b"now\n"
            assert actor.lifecycle.idle(float("inf")) == [session.sandbox_id]

    asyncio.run(story())


def test_what_another_replica_paused_is_woken_by_whoever_uses_it(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            first = await it.actor()
            session = await it.session()
            await session.start()
            assert (await session.exec("true")).ok()  # the first replica knows it now
            command = asyncio.create_task(session.exec("mkfifo go; touch begun; cat go"))
            workspace = it.box(await session.remote.record()) / "workspace"
            while not (workspace / "begun").exists():
                await asyncio.sleep(0.01)
            second = await it.actor()
            await second.lifecycle.pause(session.sandbox_id, IDLE)
            await second.stop()
            assert (await session.exec("echo now > go")).ok()
            assert (await command).stdout == b"now\n"
            assert first.lifecycle.owner == second.lifecycle.owner

    asyncio.run(story())


@contextlib.contextmanager
def held(lock: Path) -> Iterator[None]:
    """Whoever wants to look at the box waits."""
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def test_a_pause_that_comes_to_nothing_leaves_the_box_awake(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            first, second = await it.actor(), await it.actor()
            session = await it.session()
            await session.start()
            sandbox = session.sandbox_id
            live = await first.lifecycle.live(sandbox)
            assert (await session.exec("touch new")).ok()
            with held(it.home / "locks" / live.record.key):
                pause = asyncio.create_task(second.lifecycle.pause(sandbox, IDLE))
                await until(second.lifecycle._lock(sandbox).locked)
                await second.lifecycle.record(sandbox)  # by now it has read the log, too
                await first.lifecycle.checkpoint(live)
            with pytest.raises(SandboxMovedOn):
                await pause
            assert (await live.box.sessions()) == 0  # its agent answers

    asyncio.run(story())
