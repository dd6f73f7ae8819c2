"""Memory actors in their own processes, with a harness and sandboxes that are not killed; and the
invariants of a memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from actors.memory.rig import FOUND, MERGE, SCOPE, Rig
from chaos.processes import Program
from sandstream_bus.wire.memories import MemoryChanged
from support.waiting import eventually

from sandstream.testing import Conversation, ScriptedModel, error, script_for, structured, tool_call
from sandstream.testing import text as says

HANDBOOK = "# Drinks\n\ntea, whole to the last line\n"
EDITED = "by hand"
_WRITE = (
    "printf '# Drinks\\n\\ntea, whole' > MEMORY.md && printf ' to the last line\\n' >> MEMORY.md "
    "&& printf 'Tea.\\n' > memory_summary.md"
)


def drinker() -> list[Conversation]:
    """The model: it finds something in every rollout; some extractions fail once."""
    write = tool_call("exec_command", {"cmd": _WRITE, "workdir": "memories"})
    return [
        script_for("I drink", [structured(FOUND)]),
        script_for("I drink: fails once", [error(400, code="ill"), structured(FOUND)]),
        script_for(MERGE, [write, says("done")]),
    ]


class MemoryScene:
    """The memory actors of one installation."""

    def __init__(self, it: Rig, directory: Path, model: ScriptedModel) -> None:
        self.rig = it
        self._directory = directory
        self._model = model
        self._programs: list[Program] = []
        self._problems: list[str] = []

    async def actor(self, crash_at: str | None = None) -> Program:
        """Start an actor; when this returns, it is ready, or dead at its crash point."""
        self._directory.mkdir(parents=True, exist_ok=True)
        program = await Program.start(
            "lone_memory_actor",
            env={
                **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
                "NATS_URL": self.rig.server.url,
                "SANDSTREAM_HOME": str(self._directory),
                "SANDSTREAM_PREFIX": self.rig.bus.subjects.prefix,
            },
            stderr=self._directory / f"memory-{len(self._programs):03}.log",
            crash_at=crash_at,
        )
        self._programs.append(program)
        if await program.line() != "ready":
            await program.wait(5)
            if program.crashed_ns() is None:
                raise AssertionError(f"the memory actor did not start: {program.errors()}")
        return program

    @contextlib.asynccontextmanager
    async def dying_at(self, crash_at: str) -> AsyncIterator[Program]:
        """A replica that dies at this point and is replaced. Afterwards all are gone."""

        async def replace() -> None:
            await armed.wait(120)
            await self.actor()

        armed = await self.actor(crash_at)
        task = asyncio.ensure_future(replace())
        try:
            yield armed
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.gather(*(program.kill() for program in self._programs))

    async def settled(self, runs: Sequence[str]) -> None:
        """Wait until all of the runs are in the handbook."""

        async def look() -> bool:
            state = await self.rig.state()
            known = [state.rollouts.get(run) for run in runs]
            return state.merging is None and all(r is not None and r.is_merged for r in known)

        await eventually(look, within_s=60, what=f"all runs are in the handbook of {SCOPE}")

    # --- what must hold ------------------------------------------------------------------------

    async def problems(self, runs: Sequence[str], *, failures: int) -> list[str]:
        """Problems with the memory of these runs, each of which has its own rollout."""
        await self.rig.caught_up()
        for run in runs:
            await self._look_at(run)
        state = await self.rig.state()
        merged = Counter(run for it in state.history if it.kind == "merge" for run in it.runs)
        self._check(merged == Counter(runs) and state.merges == 1, f"consolidated: {merged}")
        asked = self._asked(runs)
        self._check(
            asked.keys() == set(runs) and asked.total() == len(runs) + failures,
            f"the model was asked for extractions of {asked}",
        )
        for step, wanted in (("extract", len(runs) + failures), ("merge", 1)):
            started = len(await self.rig.phase_runs(step))
            self._check(started == wanted, f"{started} runs of {step} were started")
        handbook = await self.rig.text("memories/MEMORY.md")
        self._check(handbook.startswith(HANDBOOK), f"the handbook is {handbook!r}")
        objects, named = len(await self.rig.objects()), len(await self.rig.referenced())
        self._check(objects == named, f"{objects} objects are stored, {named} are named")
        parked = [it.parked.reason for it in await self.rig.bus.parking.list()]
        self._check(not parked, f"parked: {parked}")
        await self._look_at_events(runs)
        return self._problems

    def _check(self, holds: object, problem: str) -> None:
        if not holds:
            self._problems.append(problem)

    async def _look_at(self, run: str) -> None:
        rollout = (await self.rig.state()).rollouts[run]
        self._check(rollout.runs == [run], f"{run} is in its rollout as {rollout.runs}")
        self._check(rollout.extracted == 1 and rollout.slug, f"{run}: {rollout}")
        lines = (await self.rig.text(f"sessions/{rollout.name}.jsonl")).splitlines()
        self._check([json.loads(it)["run"] for it in lines] == [run], f"{run} in {lines}")

    def _asked(self, runs: Sequence[str]) -> Counter[str]:
        """How often the model was asked for an extraction, by run."""
        texts = [json.dumps(it["input"]) for it in self._model.requests]
        named = [text.partition("|")[2].partition("|")[0] for text in texts if "I drink" in text]
        return Counter(run for run in named if run in runs)

    async def _look_at_events(self, runs: Sequence[str]) -> None:
        """Every change was announced exactly once."""
        changes = [it for it in await self.rig.events() if isinstance(it, MemoryChanged)]
        told = Counter((str(it.kind), run) for it in changes for run in it.runs)
        wanted = Counter((kind, run) for kind in ("noted", "extracted", "merge") for run in runs)
        self._check(told == wanted, f"told: {told - wanted} too much, {wanted - told} not")
