"""Lives of boxes at a vendor, from creation to removal. The actor dies at one point, while a second
replica with the same account is alive, which takes over.

The commands append their numbers to the file ``counter``: each has run once.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from chaos.evidence import Outcome
from chaos.hosted.cells import SETTINGS, Account, HostedCell, Operation
from chaos.hosted.fleet import HostedFleet
from chaos.sandbox.fleet import SANDBOX
from chaos.sandbox.work import QUICK
from support.waiting import eventually

from sandstream.sandbox import File, Manifest

LIFE_WITHIN_S = 150.0
REACHED_WITHIN_S = 60.0
_NUMBERS: dict[Operation, int] = {"exec": 1, "wake": 2}
_LAST = 3
"""The command after all others."""
_BEFORE: dict[Operation, tuple[Operation, ...]] = {
    "create": (),
    "exec": ("create",),
    "checkpoint": ("create", "exec"),
    "pause": ("create", "exec"),
    "wake": ("create", "exec", "pause"),
    "close": ("create", "exec"),
    "restore": ("create", "exec", "close"),
    "delete": ("create", "exec"),
}
"""What happens in a life before the operation in which the actor dies."""
_AFTER: dict[Operation, tuple[Operation, ...]] = {"pause": ("wake",), "close": ("restore",)}
_ASLEEP, _AWAKE = ("stopped", "paused"), ("started", "running")


async def run_lives(
    cells: Sequence[HostedCell], directory: Path, *, lanes: int
) -> dict[str, Outcome]:
    """All lives; a failure affects only its own one. Each account has its own vendor and lanes."""
    found: dict[str, Outcome] = {}
    queues: dict[Account, list[HostedCell]] = {}
    for cell in reversed(cells):
        queues.setdefault(cell.account, []).append(cell)
    room = asyncio.Semaphore(lanes)

    async def lane(account: Account, number: int) -> None:
        queue = queues[account]
        async with room:
            fleets = 0
            while queue:
                fleets += 1
                await _fleet(queue, directory / f"{account}{number}-{fleets}", found)

    await asyncio.gather(*(lane(it, n) for n in range(lanes) for it in queues))
    return found


async def _fleet(queue: list[HostedCell], directory: Path, found: dict[str, Outcome]) -> None:
    """Lives one after the other in one fleet, until one of them fails."""
    first = queue[-1]
    settings = SETTINGS[first.account]
    async with HostedFleet(directory, "http://unused", vendor=first.vendor, **settings) as fleet:
        while queue:
            life = Life(fleet, queue.pop())
            outcome = found[life.cell.name] = life.outcome
            began = time.monotonic()
            try:
                async with asyncio.timeout(LIFE_WITHIN_S):
                    await life.play()
            except Exception:
                outcome.problems.append(traceback.format_exc())
            finally:
                await life.end()
            outcome.continued_s.append(time.monotonic() - began)
            if outcome.problems:
                return


class Life:
    """One cell."""

    def __init__(self, fleet: HostedFleet, cell: HostedCell) -> None:
        self.outcome = Outcome(cell.name, cell.operation)
        self.cell = cell
        self._fleet = fleet
        manifest = Manifest(entries={"given/greeting.txt": File(content=b"hello\n")})
        self._session = fleet.session(manifest)
        self._asked: list[int] = []

    async def play(self) -> None:
        operation = self.cell.operation
        if _BEFORE[operation]:
            ordinary = await self._fleet.replica(SANDBOX)
            for before in _BEFORE[operation]:
                await self._do(before)
            await ordinary.kill()
        if operation == "delete":
            await self._judge_by_one_more()
        await self._harmed(operation)
        for after in _AFTER.get(operation, ()):
            await self._do(after)
        if operation != "delete":
            await self._judge()
            await self._do("delete")
        await self._judge_end()

    async def end(self) -> None:
        await asyncio.to_thread(self._fleet.vendor.clear_faults)
        for program in self._fleet.replicas[SANDBOX]:
            if program.is_suspended():
                program.resume()
            await program.kill()
        self._fleet.replicas[SANDBOX] = []

    # --- steps ------------------------------------------------------------------------------------

    async def _do(self, operation: Operation) -> None:
        match operation:
            case "create" | "restore":
                await self._session.start()
            case "exec" | "wake":
                await self._command(_NUMBERS[operation])
            case "checkpoint":
                self.outcome.check(await self._session.checkpoint(), "it has no digest")
            case "pause":
                await self._session.pause()
            case "close":
                await self._session.shutdown()
            case "delete":
                await self._session.delete()
            case _:
                assert_never(operation)

    async def _command(self, number: int) -> None:
        self.outcome.tool_calls += 1
        self._asked.append(number)
        done = await self._session.exec(QUICK.line(number))
        said, wanted = done.stdout.decode(), f"did-{number}-of-{len(self._asked)}"
        self.outcome.check(wanted in said, f"command {number} said {said!r}, not {wanted!r}")

    # --- harm -------------------------------------------------------------------------------------

    async def _harmed(self, operation: Operation) -> None:
        """Do it while the actor dies at the point. The replica is there before."""
        cell, faults = self.cell, self.cell.faults()
        begin = len(await self._fleet.journal())
        if cell.trouble != "next":
            await self._fleet.add_faults(faults)
        if cell.is_call:
            armed = await self._fleet.replica(SANDBOX)
        else:
            armed = await self._fleet.replica(SANDBOX, crash_at=f"{cell.point}:1:stop")
        doing = asyncio.ensure_future(self._do(operation))
        try:
            if cell.is_call:
                await self._called(faults[0].kind, begin)
            else:
                await armed.suspended(REACHED_WITHIN_S)
            await self._fleet.replica(SANDBOX)
            if cell.trouble == "next":
                await self._fleet.add_faults(faults)
            await armed.kill()
            self.outcome.kills += 1
            await doing
        finally:
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
        if faults:
            await self._met(faults[0].kind, begin)

    async def _called(self, kind: str, begin: int) -> None:
        await self._met(kind, begin)
        if self.cell.point.endswith(".after"):
            await eventually(self._is_effective, within_s=REACHED_WITHIN_S)

    async def _met(self, kind: str, begin: int) -> None:
        async def is_met() -> bool:
            return any(it.fault == kind for it in await self._fleet.journal(begin))

        await eventually(is_met, within_s=REACHED_WITHIN_S, what=f"{kind} of {self.cell.call}")

    async def _is_effective(self) -> bool:
        """Has the vendor done what it does not answer?"""
        boxes = await asyncio.to_thread(self._fleet.vendor.boxes)
        states = [it.state for it in boxes]
        match self.cell.point.split(".")[1]:
            case "remove":
                return not states
            case "pause":
                return states[0] in _ASLEEP
            case _:
                return bool(states) and states[0] in _AWAKE

    # --- evidence ---------------------------------------------------------------------------------

    async def _judge_by_one_more(self) -> None:
        """For a box that is removed next, by a replica that ends then."""
        ordinary = await self._fleet.replica(SANDBOX)
        await self._judge()
        await ordinary.kill()

    async def _judge(self) -> None:
        """What the counter says in the box, and in the checkpoint that it was restored from; and
        that the vendor has one box.
        """
        await self._command(_LAST)
        lines = (await self._read("counter")).split()
        record = await self._fleet.record_of(self._session.bus_name)
        if self.cell.operation in ("close", "restore"):
            saved = (await self._fleet.saved(record, "counter")).split()
            self.outcome.check(lines == [*saved, str(_LAST)], f"saved {saved}, restored {lines}")
        self.outcome.check(await self._read("given/greeting.txt") == "hello\n", "no greeting")
        ran = Counter(int(it) for it in lines)
        self.outcome.effects += ran.total()
        self.outcome.repeated_effects += sum(it - 1 for it in ran.values())
        self.outcome.check(ran == Counter(self._asked), f"asked {self._asked}, ran {lines}")
        is_restored = self.cell.operation in ("close", "restore")
        wanted = 2 if is_restored else 1
        self.outcome.check(record.generation == wanted, f"it has {record.generation} generations")

        async def is_the_only_one() -> bool:
            """An engine that ignores keys makes copies, which are removed soon."""
            boxes = await asyncio.to_thread(self._fleet.vendor.boxes)
            return [it.id for it in boxes] == [record.box_id]

        try:
            await eventually(is_the_only_one, within_s=40)
        except AssertionError:
            boxes = dict(await self._fleet.boxes_now())
            self.outcome.problems.append(f"its box is {record.box_id}, the vendor has {boxes}")
        await self._read("counter")  # it is the one that works

    async def _read(self, path: str) -> str:
        done = await self._session.exec(f"cat {path}")
        return done.stdout.decode()

    async def _judge_end(self) -> None:
        record = await self._fleet.record_of(self._session.bus_name)
        self.outcome.check(record.state == "deleted", f"its sandbox is {record.state}")
        try:
            await self._fleet.no_boxes()
        except AssertionError as error:
            self.outcome.problems.append(str(error))
        self.outcome.problems.extend(await self._fleet.provider_problems())
