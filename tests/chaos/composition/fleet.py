"""A deployed system of cooperating agents: two harness pools, two desks, people who approve."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import msgspec
from chaos.composition.scenarios import TALK, Plan
from chaos.fleet import Fleet
from chaos.processes import Program
from msgspec import Raw
from sandstream_bus.wire.messages import ApprovalDecided, CallRequested, RunWaiting, Task
from support.idle import is_idle
from support.waiting import eventually

HARNESS, SECOND, WORKER = "harness", "second", "worker"


class CompositionFleet(Fleet):
    """The replicas are of the kinds above: two harness pools, and workers that host both desks."""

    def __init__(self, directory: Path, model_url: str) -> None:
        super().__init__(directory, model_url)
        self.replicas = {HARNESS: [], SECOND: [], WORKER: []}

    async def replica(self, kind: str, **crash: Any) -> Program:
        program = await self.program("company_actor", kind, **crash)
        if await program.line() != "ready":
            await program.wait(5)
            if program.crashed_ns() is None:
                raise AssertionError(f"{kind} did not start: {program.errors()}")
        self.replicas[kind] = [one for one in self.replicas[kind] if one.is_running]
        self.replicas[kind].append(program)
        return program

    async def kill_all(self) -> None:
        """kill -9 of every actor."""
        await asyncio.gather(*(it.kill() for kind in self.replicas.values() for it in kind))
        self.replicas = {kind: [] for kind in self.replicas}

    # --- runs ----------------------------------------------------------------------------------

    async def begin(self, plan: Plan, key: str) -> None:
        await self.client.submit(plan.agent, plan.text, key=key, context={"key": key})

    async def talk(self, session: str, key: str) -> None:
        """Start another run on a conversation."""
        await self._publish(TALK, key, Task(input=f"{TALK.text} {key}", session=session))

    async def begin_with_expiry(self, plan: Plan, key: str, seconds: float) -> None:
        """Start a run whose approvals expire."""
        await self._publish(plan, key, Task(input=plan.text, approval_expires_s=seconds))

    async def _publish(self, plan: Plan, key: str, task: Task) -> None:
        bus = self.client.bus
        context = Raw(msgspec.json.encode({"key": key}))
        task = msgspec.structs.replace(task, context=context)
        await bus.connection.publish(
            bus.subjects.task(plan.agent), await bus.codec.encode_task(task), msg_id=key
        )

    async def children(self, run: str) -> list[str]:
        """The child runs of a run, in the order of the calls."""
        events = [it.event for it in await self.events(run)]
        return [it.child for it in events if isinstance(it, CallRequested) and it.kind == "child"]

    async def tree(self, root: str) -> list[str]:
        """A run and everything below it."""
        found = [root]
        for run in found:
            found += await self.children(run)
        return found

    async def begun(self, root: str) -> list[str]:
        """The runs of the tree that have started; a child of a cancelled run may never start."""
        runs = await self.tree(root)
        starts = [await self.client.bus.log.first_subject(self._start_of(run)) for run in runs]
        return [run for run, start in zip(runs, starts, strict=True) if start is not None]

    async def until_run_begun(self, run: str) -> None:
        async def has_begun() -> bool:
            return await self.client.bus.log.first_subject(self._start_of(run)) is not None

        await eventually(has_begun, within_s=60, what=f"{run} has begun")

    def _start_of(self, run: str) -> str:
        return self.client.bus.subjects.start(run, "*")

    # --- people --------------------------------------------------------------------------------

    def is_waiting(self, run: str) -> bool:
        return self.client.bus.subjects.waiting(run) in self._subjects_seen

    async def until_waiting(self, run: str, within_s: float = 60.0) -> RunWaiting:
        """Wait until a run waits for an approval; return its event."""
        await self.until(lambda: self.is_waiting(run), within_s, f"{run} asks nobody")
        last = await self.client.bus.log.last(self.client.bus.subjects.waiting(run))
        assert last is not None and isinstance(last.event, RunWaiting)
        return last.event

    async def decide(
        self, run: str, call: str, *, child: str = "", approve: bool = True, by: str = "somebody"
    ) -> None:
        """Decide, as any NATS client can: at the run that asks, or at one above it."""
        await self.client.bus.log.send(
            self.client.bus.subjects.approval_decided(run),
            ApprovalDecided(call=call, approve=approve, by=by, run=child),
            msg_id=f"{run}:{call}:{uuid.uuid4().hex}",
        )

    async def approve_all(self, run: str) -> None:
        """Approve everything that a run and its child runs ask for."""
        for it in (await self.until_waiting(run)).approvals:
            await self.decide(run, it.call, child="" if it.run in ("", run) else it.run)

    async def said_in(self, session: str) -> list[dict[str, Any]]:
        """The history of a conversation."""
        conversation = await self.client.bus.conversations.read(session)
        return [msgspec.json.decode(item) for item in conversation.history]

    async def is_idle(self) -> bool:
        """Whether no harness has or expects any work."""
        for pool in ("main", "second"):
            if not await is_idle(self.client.bus, f"harness-{pool}"):
                return False
        return True
