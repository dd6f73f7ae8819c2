"""The runs that must not notice anything: started all the time, and judged one by one."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from fuzz.installation import Installation
from sandstream_bus.wire.subjects import RunId

from sandstream.testing import ScriptedModel, script_for, text, tool_calls

WITHIN_S = 60.0
"""After so long a run hangs."""


class Kind(NamedTuple):
    """A kind of run: its agent, what it must say, and how often its tools must have run."""

    name: str
    agent: str
    effects: int = 0
    asks: bool = False

    @property
    def output(self) -> str:
        return f"done {self.name}"


PLAIN = Kind("plain", "plain")
TOOL = Kind("tool", "cashier", effects=1)
CHILD = Kind("child", "chief", effects=1)
APPROVAL = Kind("approval", "clerk", effects=1, asks=True)
SANDBOX = Kind("sandbox", "smith")
KINDS = (PLAIN, TOOL, CHILD, APPROVAL, SANDBOX)
_CHARGE = ("charge", {"cents": 5})
_COMMAND = ("exec_command", {"cmd": "echo it | tee done.txt", "yield_time_ms": 30_000})
_CALLS: dict[Kind, tuple[str, dict[str, Any] | str]] = {
    TOOL: _CHARGE,
    CHILD: ("ask_leaf", {"input": "[leaf]"}),
    APPROVAL: ("refund", {"cents": 5}),
    SANDBOX: _COMMAND,
}


def scripted_crew() -> ScriptedModel:
    """What the model says to honest runs; to all others it says the same again and again."""
    scripts = [script_for("[plain]", [text(PLAIN.output)], name="plain")]
    for kind, call in _CALLS.items():
        steps = [tool_calls(call), text(kind.output)]
        scripts.append(script_for(f"[{kind.name}]", steps, name=kind.name))
    scripts.append(script_for("[leaf]", [tool_calls(_CHARGE), text("charged")], name="leaf"))
    scripts.append(script_for("", [text("as you like").forever()], name="anybody"))
    return ScriptedModel(conversations=scripts, strict=False)


class HonestRuns:
    """Starts runs of all kinds until it is stopped, ``at_once`` at a time."""

    def __init__(self, installation: Installation, on_run: Callable[[str], None]) -> None:
        self._installation = installation
        self._on_run = on_run
        self._stopping = asyncio.Event()
        self.times_s: list[float] = []
        """How long each plain run took."""
        self.done: Counter[str] = Counter()
        self.problems: list[str] = []
        self._keys: dict[str, Kind] = {}

    async def quiet_s(self, rounds: int = 15) -> float:
        """How long a plain run takes while nothing else happens; the median."""
        for kind in KINDS:  # whatever is loaded late is loaded now
            await self._one(kind)
        times = [await self._timed() for _ in range(rounds)]
        return statistics.median(times)

    async def keep_running(self, at_once: int = 2) -> None:
        await asyncio.gather(self._plain_ones(), *(self._others(it) for it in range(at_once)))

    def stop(self) -> None:
        self._stopping.set()

    async def _plain_ones(self) -> None:
        while not self._stopping.is_set():
            self.times_s.append(await self._timed())
            await asyncio.sleep(0.1)

    async def _others(self, offset: int) -> None:
        number = offset
        while not self._stopping.is_set():
            await self._one(KINDS[1:][number % len(KINDS[1:])])
            number += 1

    async def _timed(self) -> float:
        began = time.monotonic()
        await self._one(PLAIN)
        return time.monotonic() - began

    async def _one(self, kind: Kind) -> None:
        key = f"h-{kind.name}-{uuid.uuid4().hex[:10]}"
        self._keys[key] = kind
        self._on_run(key)
        client = self._installation.client
        try:
            async with asyncio.timeout(WITHIN_S):
                await client.submit(
                    kind.agent, f"[{kind.name}] {key}", key=key, context={"key": key}
                )
                if kind.asks:
                    await self._approve(key)
                done = await client.bus.follow.done(RunId(key))
        except TimeoutError:
            self.problems.append(f"{key} has not ended within {WITHIN_S:.0f} s")
            return
        except Exception as error:
            self.problems.append(f"{key}: the client got {type(error).__name__}: {error}")
            return
        said = msgspec.json.decode(done.output) if done.output else None
        if done.status != "completed" or said != kind.output:
            self.problems.append(f"{key}: {done.status}, said {said!r}, error {done.error}")
        self.done[kind.name] += 1

    async def _approve(self, key: str) -> None:
        bus = self._installation.client.bus
        while await bus.log.last(bus.subjects.waiting(key)) is None:
            await asyncio.sleep(0.02)
        await self._installation.client.approve(key, by="fuzz")

    def judge_effects(self) -> None:
        """Each tool of each run has run exactly once."""
        ledger = self._installation.ledger
        lines = ledger.read_text().splitlines() if ledger.exists() else []
        counted = Counter(json.loads(line)["key"] for line in lines)
        for key, kind in self._keys.items():
            if counted[key] != kind.effects:
                self.problems.append(f"{key}: {counted[key]} effects, wanted {kind.effects}")
