"""A deployed system whose runs are remembered in one scope: memory actors, sandbox actors, and a
reader that reads the memory all the time, in the store and in a workspace.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from actors.memory.rig import SCOPE, Rig, use
from chaos.processes import Program
from chaos.sandbox.fleet import SandboxFleet
from sandstream_bus.errors import BusError, ObjectMissing
from sandstream_bus.logs.sandboxes import new_op
from sandstream_bus.wire.memories import MemoryState
from sandstream_bus.wire.sandboxes import MemoryMount, Open, SandboxRequest, SandboxSpec
from support.waiting import eventually

from sandstream.testing import Conversation, ScriptedModel, script_for, structured, text, tool_call

MEMORY, PHASES = "memory", "phases"
"""Memory actors, each with a harness for its phases; and harnesses for phases alone."""
READER = "reader"
HANDBOOK = "memories/MEMORY.md"
_WHOLE = re.compile(
    r"# Handbook of (?P<count>\d+)\n\n(?P<facts>(?:- fact-\d+ \(\S+\)\n)*)end of (?P=count)\n"
)
_WRITE = r"""
cd memories
n=$(grep -c '^FACT ' raw_memories.md)
awk '/^rollout_summary_file: /{file=$2} /^FACT /{print "- " $2 " (" file ")"}' raw_memories.md \
    > /tmp/facts
echo "# Handbook of $n" > MEMORY.md; echo >> MEMORY.md
while read -r line; do echo "$line" >> MEMORY.md; done < /tmp/facts
sleep 0.1
echo "end of $n" >> MEMORY.md
echo "There are $n facts." > memory_summary.md
"""
"""Writes in several steps: only the consolidation may see an incomplete handbook."""


def fact(number: int) -> str:
    return f"fact-{number:04}"


def scripted_memory(facts: int, *, latency_s: float = 0.05) -> ScriptedModel:
    """Extracts the fact of each run, and makes a handbook of all facts."""
    scripts = memory_scripts(facts, latency_s=latency_s)
    return ScriptedModel(conversations=scripts, strict=False)


def memory_scripts(
    facts: int, *, latency_s: float = 0.05, after_fact: str = ";"
) -> list[Conversation]:
    """The model's answers in both phases. ``after_fact`` follows each fact in the transcripts."""
    extractions = [
        script_for(
            f"{fact(number)}{after_fact}",
            [
                structured(
                    {
                        "rollout_slug": fact(number),
                        "rollout_summary": f"# {fact(number)}",
                        "raw_memory": f"FACT {fact(number)}",
                    }
                ).after(latency_s)
            ],
        )
        for number in range(facts)
    ]
    merge = script_for(
        "Consolidate the memory in memories/",
        [
            tool_call("exec_command", {"cmd": _WRITE, "yield_time_ms": 30_000}).after(latency_s),
            text("done").after(latency_s),
        ],
    )
    return [*extractions, merge]


def facts_of(handbook: str) -> Counter[str] | None:
    """The facts of a complete version; ``None`` if it is incomplete."""
    if not handbook:
        return Counter()
    found = _WHOLE.fullmatch(handbook)
    if found is None or handbook.count("- fact-") != int(found["count"]):
        return None
    return Counter(re.findall(r"- (fact-\d+)", found["facts"]))


class MemoryFleet(SandboxFleet):
    """Adds replicas of the two kinds above."""

    def __init__(self, directory: Path, model_url: str) -> None:
        super().__init__(directory, model_url)
        self.replicas |= {MEMORY: [], PHASES: []}
        self.reads = 0
        self.seen_handbooks: dict[str, str] = {}
        """Every content that the reader saw, and where."""

    @functools.cached_property
    def rig(self) -> Rig:
        return Rig(self.server, self.client.bus, self.directory, None)

    async def replica(self, kind: str, **options: Any) -> Program:
        if kind not in (MEMORY, PHASES):
            return await super().replica(kind, **options)
        program = await self.program("memory_actor", *(["harness"] if kind == PHASES else []))
        if await program.line() != "ready":
            raise AssertionError(f"{kind} did not start: {program.errors()}")
        self.replicas[kind] = [one for one in self.replicas[kind] if one.is_running]
        self.replicas[kind].append(program)
        return program

    async def restart_one(self, kind: str, index: int) -> None:
        """kill -9 of a replica, and start a replacement."""
        alive = [one for one in self.replicas[kind] if one.is_running]
        await alive[index % len(alive)].kill()
        await self.replica(kind)

    # --- runs ----------------------------------------------------------------------------------

    async def end_runs(self, first: int, count: int) -> list[str]:
        """End this many runs at once, each with its own fact."""
        every = use(batch_size=10, max_raw_memories=4096)
        return await asyncio.gather(
            *(
                self.rig.ended(
                    f"Remember {fact(number)}; please.",
                    run=f"run-{number:04}",
                    rollout=f"chat {number}",
                    use=every,
                    sandbox=READER,
                )
                for number in range(first, first + count)
            )
        )

    async def merged(self, count: int, *, within_s: float) -> MemoryState:
        """Wait until this many runs are recorded and all of them are consolidated."""
        asked = 0

        async def look() -> MemoryState | None:
            nonlocal asked
            try:
                state = await self.rig.state()
            except BusError:
                return None  # the server was killed
            rollouts = state.rollouts.values()
            is_noted = len(rollouts) == count and all(it.runs for it in rollouts)
            if is_noted and not asked:
                asked += 1
                await self.rig.ask()
            done = all(it.is_merged for it in rollouts) and state.merging is None
            return state if is_noted and done else None

        found = await eventually(look, within_s=within_s, what=f"{count} runs are in the handbook")
        assert found is not None
        return found

    async def all_merged(self, count: int, *, within_s: float) -> MemoryState:
        """The same, and the reader's workspace has it too."""
        found = await self.merged(count, within_s=within_s)
        data = (await self.rig.files())[HANDBOOK]

        async def has_it() -> bool:
            await asyncio.sleep(0.05)
            return self.seen_handbooks.get(data.decode()) == "a workspace"

        await eventually(has_it, within_s=within_s, what="the workspace has the last handbook")
        return found

    # --- the reader ----------------------------------------------------------------------------

    async def open_reader(self) -> Path:
        """Open a workspace with the memory; return the path of its handbook, seen from outside."""
        spec = SandboxSpec(memories=[MemoryMount(scope=SCOPE)])
        request = SandboxRequest(op=new_op(), action=Open(spec=spec))
        reply = await self.client.bus.sandboxes.request(READER, request, provider="local")
        assert reply.error is None, reply.error
        return self.workspace(await self.record_of(READER)) / HANDBOOK

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Meanwhile, read the handbook in the store and in a workspace repeatedly."""
        file = await self.open_reader()
        tasks = [asyncio.ensure_future(it) for it in (self._read_store(), self._read_file(file))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            wrong = [it for it in results if not isinstance(it, asyncio.CancelledError)]
            assert not wrong, wrong

    async def _read_store(self) -> None:
        memories = self.client.bus.memories
        while True:
            try:
                tree = (await memories.read(SCOPE)).state.tree
                if HANDBOOK in tree:
                    data = await memories.get(SCOPE, tree[HANDBOOK])
                    self.seen_handbooks.setdefault(data.decode(), "the store")
                    self.reads += 1
            except ObjectMissing:
                pass  # replaced between the two reads
            except BusError:
                await asyncio.sleep(0.2)  # the server was killed
            await asyncio.sleep(0.02)

    async def _read_file(self, file: Path) -> None:
        while True:
            with contextlib.suppress(FileNotFoundError):  # a sandbox that moves is away for a while
                self.seen_handbooks[_content(file)] = "a workspace"
                self.reads += 1
            await asyncio.sleep(0.01)


def _content(file: Path) -> str:
    return file.read_text()
