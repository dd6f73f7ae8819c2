"""Memories of runs, as the actors do it: mounted by a run's open call, edited on two nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from actors.sandbox.memory_yard import ALL, HANDBOOK, SCOPE, files_in, remember
from actors.sandbox.yard import yard
from sandstream_actors.memory.actor import MemoryActor
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sandbox.memory_sync import mount_of
from sandstream_bus.bus import Bus
from sandstream_bus.logs.sandboxes import new_op
from sandstream_bus.nats.direct import stale_many
from sandstream_bus.wire.memory_specs import MemoryUse
from sandstream_bus.wire.messages import CallFinished, CallRequested, GraphSpec, RunStarted
from sandstream_bus.wire.sandboxes import (
    MemoryMount,
    SandboxMounted,
    SandboxRequest,
    SandboxUse,
    SyncMemory,
)
from sandstream_bus.wire.specs import AgentSpec
from sandstream_workspaces.store import WorkspaceStore
from support.nats_server import NatsServer
from support.runs import new_run
from support.waiting import eventually, until


async def call(bus: Bus, kind: str, sandbox: str, use: MemoryUse, *, owned: bool = True) -> None:
    """A run of a sandbox agent with a memory that asks for one thing, and gets it."""
    run = new_run()
    agent = AgentSpec(
        name="a",
        host="h",
        model="m",
        sandbox=SandboxUse(id=sandbox, owned=owned),
        memory=use,
    )
    started = RunStarted(pool="main", graph=GraphSpec(start="a", agents={"a": agent}), input=[])
    start = bus.subjects.start(run, "main")
    await bus.log.append(run, start, started, after=0, msg_id=f"{run}:start")
    request = CallRequested(
        call=f"t1-{kind}",
        kind=kind,  # type: ignore[arg-type]
        turn=1,
        agent="a",
        reply_pool="main",
        sandbox=sandbox,
    )
    subject = bus.subjects.run_sandbox(run, "local")
    await bus.log.send(subject, request, msg_id=f"{run}:{kind}")

    async def answered() -> list[CallFinished]:
        events = [it.event for it in await bus.log.read(run)]
        return [it for it in events if isinstance(it, CallFinished)]

    finished = (await eventually(answered, what=f"the run's {kind} call is answered"))[0]
    assert finished.error is None, finished.error


async def record_of(bus: Bus, sandbox: str) -> SandboxRecord:
    return SandboxRecord.of(sandbox, await bus.sandboxes.read(sandbox))


async def mounts(bus: Bus, sandbox: str) -> list[MemoryMount]:
    events = [it.event for it in await bus.sandboxes.read(sandbox)]
    return [it.memory for it in events if isinstance(it, SandboxMounted)]


def test_the_open_call_of_a_run_brings_its_memory(nats_server: NatsServer, tmp_path: Path) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            await it.actor()
            bus = await it.bus()
            await remember(bus, ALL, scope="sandbox:own")
            await call(bus, "open", "own", MemoryUse())
            assert await mounts(bus, "own") == []  # it was made with it
            record = await record_of(bus, "own")
            assert [*record.memories] == ["sandbox:own"]
            workspace = it.box(record) / "workspace"
            assert files_in(workspace) == ALL
            (workspace / HANDBOOK).write_text("edited\n")
            await call(bus, "close", "own", MemoryUse())
            subject = bus.subjects.memory_edit("sandbox:own")
            told = await stale_many(bus.connection, bus.topology.log, subject, after=0)
            assert len(told) == 1
            # somebody's session: it gets the memory with the first run, and other ones anew
            session = await it.session(bus)
            await session.start()
            sandbox = session.sandbox_id
            await remember(bus, ALL)
            reads = MemoryUse(scope=SCOPE, live_update=False, generates=False)
            for _ in range(2):
                await call(bus, "open", sandbox, reads, owned=False)
            assert await mounts(bus, sandbox) == [MemoryMount(scope=SCOPE, writable=False)]
            generates = MemoryUse(scope=SCOPE, memories_dir="m/", reads=False)
            await call(bus, "open", sandbox, generates, owned=False)
            assert (await mounts(bus, sandbox))[1:] == [MemoryMount(scope=SCOPE, memories_dir="m")]
            assert (await session.exec("cat m/MEMORY.md")).stdout.decode() == ALL[HANDBOOK]

    asyncio.run(story())


def test_what_one_of_a_runs_agents_may_change_is_kept_whoever_opens_the_sandbox() -> None:
    shared, own = SandboxUse(id="one"), SandboxUse()
    reads = MemoryUse(scope=SCOPE, live_update=False)

    def agent(name: str, sandbox: SandboxUse, memory: MemoryUse | None) -> AgentSpec:
        return AgentSpec(name=name, host="h", model="m", sandbox=sandbox, memory=memory)

    reader = agent("reader", shared, reads)
    graph = GraphSpec(start="reader", agents={"reader": reader})
    read_only = MemoryMount(scope=SCOPE, writable=False)
    assert mount_of(reader, graph, "one") == read_only
    for other, expected in (
        (agent("other", shared, MemoryUse(scope=SCOPE)), MemoryMount(scope=SCOPE)),
        (agent("other", own, MemoryUse(scope=SCOPE)), read_only),
        (agent("other", shared, MemoryUse(scope="another")), read_only),
        (agent("other", shared, None), read_only),
    ):
        graph = GraphSpec(start="reader", agents={"reader": reader, "other": other})
        assert mount_of(reader, graph, "one") == expected
    assert mount_of(agent("other", shared, None), graph, "one") is None


def test_edits_of_two_nodes_come_together_in_the_memory_and_in_both_workspaces(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def story() -> None:
        async with yard(nats_server, tmp_path / "home") as it:
            bus = await it.bus()

            async def nowhere() -> tuple[str, str]:
                return "local", ""

            memory = MemoryActor(bus, WorkspaceStore(bus), place=nowhere)
            await memory.start()
            try:
                await remember(bus, {HANDBOOK: "first\nmiddle\nlast\n"})
                sessions = []
                for node in ("a", "b"):
                    await it.actor(node=node, home=tmp_path / "home")
                    session = await it.session(bus, node=node)
                    await session.start()
                    use = MemoryUse(scope=SCOPE)
                    await call(bus, "open", session.sandbox_id, use, owned=False)
                    sessions.append(session)
                edits = ("sed -i 1iby-a memories/MEMORY.md", "echo by-b >> memories/MEMORY.md")
                for session, edit in zip(sessions, edits, strict=True):
                    assert (await session.exec(edit)).ok()
                for session in sessions:
                    op = SandboxRequest(op=new_op(), action=SyncMemory(scope=SCOPE))
                    node = (await session.remote.record()).node
                    reply = await bus.sandboxes.request(
                        session.sandbox_id, op, provider="local", node=node
                    )
                    assert b'"synced":true' in bytes(reply.result), reply
                together = "by-a\nfirst\nmiddle\nlast\nby-b\n"

                async def taken() -> bool:
                    state = (await bus.memories.read(SCOPE)).state
                    return await bus.memories.get(SCOPE, state.tree[HANDBOOK]) == together.encode()

                await eventually(taken, what="both edits are in the memory")
                for session in sessions:
                    workspace = it.box(await session.remote.record()) / "workspace"
                    handbook = workspace / HANDBOOK
                    await until(
                        lambda path=handbook: path.read_text() == together,  # type: ignore[misc]
                        what="each workspace has both",
                    )
            finally:
                await memory.stop()

    asyncio.run(story())
