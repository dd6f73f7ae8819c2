"""A memory actor with all that it needs, on a real server: a harness, a scripted model over HTTP,
real sandboxes; and runs that have ended, written by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_actors.harness.actor import Harness
from sandstream_actors.memory.actor import CONSUMER, MemoryActor
from sandstream_actors.memory.freshness import is_settled
from sandstream_actors.memory.scope.files import load
from sandstream_actors.run.state import RunState
from sandstream_actors.sandbox.actor import SandboxActor
from sandstream_bus.bus import Bus
from sandstream_bus.nats.direct import stale_many
from sandstream_bus.wire.memories import (
    EditRequested,
    FileEdit,
    MemoryChanged,
    MemoryFailed,
    MemoryState,
    MergeRequested,
)
from sandstream_bus.wire.memory_specs import MemoryPart, MemoryUse, PhaseModel
from sandstream_bus.wire.messages import (
    ErrorInfo,
    ModelAnswered,
    RunDone,
    RunStarted,
    TokenUsage,
)
from sandstream_bus.wire.sandboxes import (
    SandboxCheckpointed,
    SandboxIntended,
    SandboxStopped,
    SandboxUse,
)
from sandstream_bus.wire.specs import AgentSpec, GraphSpec, RunOptions
from sandstream_bus.wire.subjects import RunId
from sandstream_providers.local.provider import LocalProvider
from sandstream_workspaces.store import WorkspaceStore
from support.idle import is_idle
from support.nats_server import NatsServer
from support.waiting import eventually

from sandstream.models.defaults import DefaultModels
from sandstream.testing import (
    Conversation,
    ScriptedModel,
    Step,
    script_for,
    structured,
    text,
    tool_call,
)

SCOPE = "user-42"
FOUND = {
    "rollout_slug": "tea-orders",
    "rollout_summary": "The user drinks tea.",
    "raw_memory": "---\ndescription: drinks\n---\nThe user prefers tea.",
}
NOTHING = {"rollout_slug": "", "rollout_summary": "", "raw_memory": ""}
USE = MemoryUse(
    scope=SCOPE,
    quiet_s=3600.0,
    phase_one=PhaseModel(model="gpt-small"),
    phase_two=PhaseModel(model="gpt-big"),
    phase_two_max_turns=8,
)
MERGE = "Consolidate the memory"
"""Every consolidation's request has it, and no extraction's."""


def use(**changes: Any) -> MemoryUse:
    return msgspec.structs.replace(USE, **changes)


def extracts(match: str, value: dict[str, str] = FOUND, *before: Step) -> Conversation:
    """What the model finds in transcripts with this text."""
    return script_for(match, [*before, structured(value)])


def merges(handbook: str, *, summary: str = "Tea.", also: str = "true") -> Conversation:
    """A consolidator that writes this."""
    command = (
        f"cat raw_memories.md > /dev/null; printf '%s\\n' '{handbook}' > MEMORY.md; "
        f"printf '%s\\n' '{summary}' > memory_summary.md; {also}"
    )
    call = tool_call("exec_command", {"cmd": command, "workdir": "memories"})
    return script_for(MERGE, [call, text("done")])


class Rig:
    """What a test sees and does."""

    def __init__(self, server: NatsServer, bus: Bus, home: Path, stack: Any) -> None:
        self.server = server
        self.bus = bus
        self.home = home
        self._stack = stack
        self._runs = 0

    # --- actors --------------------------------------------------------------------------------

    async def new_bus(self) -> Bus:
        bus = await Bus.open(self.server.options(), prefix=self.bus.subjects.prefix)
        self._stack.push_async_callback(bus.close)
        return bus

    async def harness(self, pool: str = "memory") -> Harness:
        models = DefaultModels()
        self._stack.push_async_callback(models.aclose)
        harness = Harness(await self.new_bus(), models, pool=pool, takes_tasks=False)
        await harness.start()
        self._stack.push_async_callback(harness.stop, 0.0)
        return harness

    async def sandboxes(self) -> SandboxActor:
        provider = LocalProvider(self.home)
        actor = SandboxActor(
            await self.new_bus(), provider, node="here", reap_every_s=3600, watch_every_s=3600
        )
        await actor.start()
        self._stack.push_async_callback(actor.stop, 0.0)
        return actor

    async def actor(
        self,
        *,
        backoff_s: Sequence[float] = (0.02, 0.02, 0.02),
        watch_s: float = 3600.0,
        provider: str = "local",
        **more: Any,
    ) -> MemoryActor:
        async def place() -> tuple[str, str]:
            return provider, ""

        bus = await self.new_bus()
        more |= {"place": place, "watch_s": watch_s, "backoff_s": tuple(backoff_s)}
        actor = MemoryActor(bus, WorkspaceStore(bus), **more)
        await actor.start()
        self._stack.push_async_callback(actor.stop, 0.0)
        return actor

    # --- runs ----------------------------------------------------------------------------------

    async def ended(
        self,
        said: str,
        *,
        rollout: str = "",
        use: MemoryUse = USE,
        answer: str = "Noted.",
        pool: str = "gone",
        done: RunDone | None = None,
        run: str = "",
        options: RunOptions | None = None,
        items: Sequence[Any] = (),
        sandbox: str = "box-1",
    ) -> str:
        """A run of an agent with this memory that has ended."""
        self._runs += 1
        run = run or f"run{self._runs}"
        bus, s = self.bus, self.bus.subjects
        agent = AgentSpec(
            name="a",
            host="gone",
            model="m",
            memory=use,
            sandbox=SandboxUse(id=sandbox, owned=False),
        )
        started = RunStarted(
            graph=GraphSpec(start="a", agents={"a": agent}),
            input=[raw({"role": "user", "content": said})],
            options=options or RunOptions(),
            pool=pool,
        )
        message = {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": answer}],
        }
        answered = ModelAnswered(
            turn=1, agent="a", output=[*map(raw, items), raw(message)], usage=TokenUsage()
        )
        done = done or RunDone(
            status="completed", agent="a", turns=1, usage=TokenUsage(), output=raw(answer)
        )
        done = msgspec.structs.replace(
            done, memory=MemoryPart(scope=use.scope, id=rollout or f"run-{run}")
        )
        after = 0
        for subject, event in (
            (s.start(run, pool), started),
            (s.model(run), answered),
            (s.done(run), done),
        ):
            after = await bus.log.append(
                RunId(run), subject, event, after=after, msg_id=f"{run}:{subject}"
            )
        return run

    async def ask(self, reason: str = "asked", scope: str = SCOPE) -> None:
        self._runs += 1
        await self.bus.memories.send(
            self.bus.subjects.memory_merge(scope),
            MergeRequested(reason=reason),
            msg_id=f"ask-{self._runs}",
        )

    @contextlib.asynccontextmanager
    async def served(self, consumer: str) -> AsyncIterator[None]:
        """As if somebody served it, who does nothing; afterwards he is gone."""
        announced = await self.bus.presence.announce(consumer)
        try:
            yield
        finally:
            await announced.close()

    async def end_phase(self, run: str, done: RunDone, **files: str) -> None:
        """End the run of a phase by hand; with files, its sandbox was left with these in it."""
        events = await self.bus.log.read(RunId(run))
        state = RunState.of(RunId(run), events)
        if files:
            await self._leave_workspace(state, files)
        await self.bus.log.append(
            RunId(run),
            self.bus.subjects.done(run),
            msgspec.structs.replace(done, memory=state.options.memory),
            after=state.last_seq,
            msg_id=f"{run}:done",
        )

    async def _leave_workspace(self, state: RunState, files: dict[str, str]) -> None:
        store = WorkspaceStore(self.bus)
        use = state.agent.sandbox
        assert use is not None
        kept: dict[str, bytes] = {}
        start = use.spec.plan.trees[0].tree
        for entry in await store.entries(start):
            if entry.kind == "file":
                parts = [part async for part in store.read_file(start, entry.path)]
                kept[entry.path] = b"".join(parts)
        kept |= {f"memories/{name}.md": data.encode() for name, data in files.items()}
        tree = await store.add_files([(path, data, 0o644) for path, data in kept.items()])
        sandbox = state.sandbox_id(state.agent)
        after = 0
        for event in (
            SandboxIntended(spec=use.spec, generation=1, provider="local", node="n", key="k"),
            SandboxCheckpointed(
                generation=1, tree=tree, files=len(kept), size_bytes=0, new_bytes=0
            ),
            SandboxStopped(generation=1),
        ):
            after = await self.bus.sandboxes.append(sandbox, event, after=after)

    async def extracted(self, said: str, **more: Any) -> str:
        """A run that has ended and whose extraction is in the memory, done by hand."""
        run = await self.ended(said, **more)
        phase = await self.extracting(run)
        await self.end_phase(phase, completed(raw(FOUND)))
        await self.until(lambda s: not rollout_of(s, run).extracting, "it is extracted")
        return run

    async def extracting(self, run: str, scope: str = SCOPE) -> str:
        """The run that extracts from this one, once it is there."""
        state = await self.until(
            lambda s: bool(rollout_of(s, run) and rollout_of(s, run).extracting),
            "its extraction begins",
            scope,
        )
        return await self._begun(rollout_of(state, run).extracting)

    async def merging(self) -> str:
        """The run that consolidates, once it is there."""
        state = await self.until(lambda s: s.merging is not None, "a consolidation begins")
        assert state.merging is not None
        return await self._begun(state.merging.run)

    async def _begun(self, run: str) -> str:
        async def has_begun() -> bool:
            return bool(await self.bus.log.read(RunId(run)))

        await eventually(has_begun, what="the phase's run begins")
        return run

    async def edit(
        self, path: str, data: str | None, *, base: int, sandbox: str = "box-2", **more: Any
    ) -> None:
        self._runs += 1
        change = FileEdit(path=path, data=None if data is None else data.encode())
        await self.bus.memories.send(
            self.bus.subjects.memory_edit(SCOPE),
            EditRequested(sandbox=sandbox, base=base, edits=[change], **more),
            msg_id=f"edit-{self._runs}",
        )

    # --- what is there -------------------------------------------------------------------------

    async def state(self, scope: str = SCOPE) -> MemoryState:
        return (await self.bus.memories.read(scope)).state

    async def files(self, scope: str = SCOPE) -> dict[str, bytes]:
        state = await self.state(scope)
        return await load(self.bus, scope, state.tree)

    async def text(self, path: str, scope: str = SCOPE) -> str:
        return (await self.files(scope)).get(path, b"").decode()

    async def until(self, holds: Any, what: str, scope: str = SCOPE) -> MemoryState:
        async def look() -> MemoryState | None:
            state = await self.state(scope)
            return state if holds(state) else None

        found = await eventually(look, within_s=30, what=what)
        assert found is not None
        return found

    async def settled(self, *runs: str, scope: str = SCOPE) -> MemoryState:
        return await self.until(
            lambda state: all(is_settled(state, run) for run in runs or [None]),
            "the memory is settled",
            scope,
        )

    async def events(self, scope: str = SCOPE) -> list[MemoryChanged | MemoryFailed]:
        """What people were told, in order."""
        subject = self.bus.subjects.memory_event(scope)
        found = await stale_many(self.bus.connection, self.bus.topology.log, subject, after=0)
        events = [await self.bus.codec.memory_event(it.data) for it in found]
        return [it for it in events if isinstance(it, MemoryChanged | MemoryFailed)]

    async def kinds(self, scope: str = SCOPE) -> list[str]:
        """The events in short: their kinds, or the steps that failed."""
        return [
            it.kind if isinstance(it, MemoryChanged) else f"{it.step} failed"
            for it in await self.events(scope)
        ]

    async def caught_up(self) -> None:
        """All that was sent is worked on."""

        await eventually(
            lambda: is_idle(self.bus, CONSUMER), what="the memory actor has nothing to do"
        )

    async def phase_runs(self, step: str) -> list[str]:
        """All runs of a phase that were started."""
        subjects = await self.bus.topology.subjects_of(
            self.bus.connection,
            self.bus.topology.log,
            f"{self.bus.subjects.prefix}.run.*.start.*",
        )
        runs = [str(self.bus.subjects.parse_run(it).run) for it in subjects]
        return [run for run in runs if run.startswith(f"memory-{step}-")]

    async def referenced(self) -> set[str]:
        """The digests of all that the scope's state names."""
        state = await self.state()
        trees = {it for r in state.history for it in (r.before, r.after)} - {""}
        found = {ref.digest for ref in state.tree.values()} | trees
        for tree in trees:
            refs = await self.bus.memories.get_tree(SCOPE, tree)
            found |= {ref.digest for ref in refs.values()}
        return found

    async def objects(self) -> set[str]:
        """The names of all objects in the memory bucket."""
        topology = self.bus.topology
        subjects = await topology.subjects_of(
            self.bus.connection, f"OBJ_{topology.memory_bucket}", f"$O.{topology.memory_bucket}.M.>"
        )
        return set(subjects)


Scene = Callable[[Rig, ScriptedModel], Awaitable[None]]
Play = Callable[..., None]


def raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def completed(output: Raw | None = None) -> RunDone:
    return RunDone(
        status="completed",
        agent="a",
        turns=1,
        usage=TokenUsage(),
        output=output or raw("done"),
    )


def rollout_of(state: MemoryState, run: str) -> Any:
    """The rollout of a run; None while it has none."""
    return next((it for it in state.rollouts.values() if run in it.runs), None)


def failed(code: str, message: str) -> RunDone:
    return RunDone(
        status="failed",
        agent="a",
        turns=1,
        usage=TokenUsage(),
        error=ErrorInfo(code=code, message=message),
    )


def bodies(model: ScriptedModel, name: str) -> list[dict[str, Any]]:
    """The requests that were made with a model."""
    return [dict(it) for it in model.requests if it["model"] == name]


def play(
    server: NatsServer, home: Path, scene: Scene, *script: Conversation, steps: Sequence[Step] = ()
) -> None:
    """A scene with a model that says what its script says."""

    async def main() -> None:
        async with (
            ScriptedModel(steps, conversations=script) as model,
            rig(server, home, model) as it,
        ):
            await scene(it, model)

    asyncio.run(main())


@contextlib.asynccontextmanager
async def rig(
    server: NatsServer, home: Path, model: ScriptedModel | None, *, prefix: str = "sandstream"
) -> AsyncIterator[Rig]:
    """Everything that was started ends with it. ``prefix``: of an installation of its own."""
    if model is not None:
        os.environ["OPENAI_BASE_URL"] = model.base_url
    try:
        async with contextlib.AsyncExitStack() as stack:
            bus = await Bus.open(server.options(), prefix=prefix, create="missing")
            stack.push_async_callback(bus.close)
            yield Rig(server, bus, home, stack)
    finally:
        provider = LocalProvider(home)
        for folder in sorted((home / "sandboxes").glob("[!.]*")):
            await provider.delete(folder.name)
        await provider.close()
