"""A cancelled run leaves no sandbox behind, and none is made only to end something in it."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from actors.sandbox.yard import yard
from sandstream_actors.sandbox.specs import box_key
from sandstream_bus.bus import Bus
from sandstream_bus.wire.messages import CallRequested, CancelRequested, GraphSpec, RunStarted
from sandstream_bus.wire.sandboxes import SandboxUse
from sandstream_bus.wire.specs import AgentSpec
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer
from support.runs import new_run
from support.waiting import eventually

SANDBOX = "one"


def request(kind: str) -> CallRequested:
    return CallRequested(
        call=f"t1-{kind}",
        kind=kind,  # type: ignore[arg-type]
        turn=1,
        agent="a",
        reply_pool="main",
        sandbox=SANDBOX,
    )


async def begin(bus: Bus, kind: str) -> RunId:
    """A run of a sandbox agent that has asked for one thing."""
    run = new_run()
    agent = AgentSpec(name="a", host="h", model="m", sandbox=SandboxUse(id=SANDBOX))
    graph = GraphSpec(start="a", agents={"a": agent})
    started = RunStarted(pool="main", graph=graph, input=[])
    start = bus.subjects.start(run, "main")
    await bus.log.append(run, start, started, after=0, msg_id=f"{run}:start")
    subject = bus.subjects.run_sandbox(run, "local")
    await bus.log.send(subject, request(kind), msg_id=f"{run}:{kind}")
    return run


async def state_is(bus: Bus, state: str) -> None:
    async def look() -> bool:
        events = await bus.sandboxes.read(SANDBOX)
        return bool(events) and type(events[-1].event).__name__ == state

    await eventually(look, what=f"the sandbox's log ends with {state}")


def test_a_sandbox_that_is_being_made_goes_with_its_run(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            actor = await it.actor()
            bus = await it.bus()
            key = box_key(actor.lifecycle.owner, SANDBOX, 1)
            lock = os.open(it.home / "locks" / key, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)  # its making waits here
            run = await begin(bus, "open")
            await state_is(bus, "SandboxIntended")
            await bus.log.send(bus.subjects.cancel(run), CancelRequested(), msg_id=f"{run}:cancel")
            await state_is(bus, "SandboxStopped")
            os.close(lock)
            await actor.stop()
            assert not list((it.home / "sandboxes").iterdir())

    asyncio.run(story())


def test_nothing_is_made_to_end_a_command_of_a_closed_sandbox(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            actor = await it.actor()
            bus = await it.bus()
            run = await begin(bus, "open")
            await state_is(bus, "SandboxReady")
            await actor.lifecycle.close(SANDBOX, checkpoint=False, delete=False)
            await actor._calls.give_up(run, request("tool"))
            assert (await actor.lifecycle.record(SANDBOX)).state == "stopped"

    asyncio.run(story())
