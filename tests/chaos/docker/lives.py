"""Lives of containers, from creation to removal, in which something dies at one point.

Each life is one session on a node of its own. Its commands append their numbers to the file
``counter``: each has run once; or its caller was told that it failed, and it has run once or never.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, assert_never

from chaos.docker.cells import LifeCell, Operation
from chaos.docker.engine_gate import EngineGate, When
from chaos.docker.fleet import DockerFleet
from chaos.evidence import Outcome
from chaos.processes import Program
from chaos.sandbox.fleet import SANDBOX
from chaos.sandbox.work import QUICK
from support.engines import engine
from support.engines.own_engine import OwnEngine
from support.waiting import eventually

from sandstream._run.sandbox_host import node_name
from sandstream.sandbox import File, Manifest
from sandstream.sandbox.errors import SandboxError

LIFE_WITHIN_S = 110.0
REACHED_WITHIN_S = 60.0
_NUMBERS: dict[Operation, int] = {"exec": 1, "pty": 2, "wake": 3}
_ALONE = {"CHAOS_WATCH_S": "3600"}
"""No life takes over the work of another one that has ended."""
_LAST = 4
"""The command after all others."""
_BEFORE: dict[Operation, tuple[Operation, ...]] = {
    "create": (),
    "exec": ("create",),
    "pty": ("create", "exec"),
    "checkpoint": ("create", "exec"),
    "pause": ("create", "exec"),
    "wake": ("create", "exec", "pause"),
    "close": ("create", "exec"),
    "restore": ("create", "exec", "close"),
    "delete": ("create", "exec"),
}
"""What happens in a life before the operation in which something dies."""
_AFTER: dict[Operation, tuple[Operation, ...]] = {"pause": ("wake",), "close": ("restore",)}


class Meeting:
    """All lives wait for each other; then their engine dies, and a supervisor restarts it."""

    def __init__(self, engine: OwnEngine, count: int) -> None:
        self._engine = engine
        self._missing = count
        self._all_here = asyncio.Event()
        self._is_dead = asyncio.Event()
        self.is_over = asyncio.Event()
        """The engine answers again."""

    async def arrive(self) -> None:
        """Returns when the engine is dead."""
        self._missing -= 1
        if self._missing == 0:
            self._all_here.set()
        await self._is_dead.wait()

    async def run(self) -> None:
        """Whoever does not come in time is not waited for; its own test says so."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REACHED_WITHIN_S):
                await self._all_here.wait()
        await self._engine.kill()
        self._is_dead.set()
        await self._engine.up()
        self.is_over.set()


async def run_lives(
    cells: Sequence[LifeCell],
    fleet: DockerFleet,
    *,
    at_once: int,
    meeting: Meeting | None = None,
) -> dict[str, Outcome]:
    """All lives; a failure affects only its own one. ``meeting``: for cells of an engine."""
    found: dict[str, Outcome] = {}
    room = asyncio.Semaphore(at_once)

    async def play(cell: LifeCell, node: str) -> None:
        async with room:
            life = Life(fleet, cell, node, room, meeting)
            began = time.monotonic()
            try:
                async with asyncio.timeout(LIFE_WITHIN_S):
                    await life.play()
            except Exception:
                life.outcome.problems.append(traceback.format_exc())
            finally:
                await life.end()
            life.outcome.continued_s.append(time.monotonic() - began)
            found[cell.name] = life.outcome

    await asyncio.gather(*(play(cell, f"life{n}") for n, cell in enumerate(cells)))
    return found


class Life:
    """One cell."""

    def __init__(
        self,
        fleet: DockerFleet,
        cell: LifeCell,
        node: str,
        room: asyncio.Semaphore,
        meeting: Meeting | None,
    ) -> None:
        self.outcome = Outcome(cell.name, cell.operation)
        self._fleet = fleet
        self._cell = cell
        self._node = node
        self._room = room
        self._meeting = meeting
        self._actor: Program | None = None
        self._harm: asyncio.Task[None] | None = None
        self._gate = contextlib.AsyncExitStack()
        image = engine.PYTHON if cell.has_python else engine.BUSYBOX
        manifest = Manifest(entries={"given/greeting.txt": File(content=b"hello\n")})
        own = node_name(fleet.home(node))
        self._session = fleet.session(manifest, node=own, image=image)
        self._told = 0
        """How many commands have told what they did."""
        self._asked: list[int] = []
        self._failed: dict[int, str] = {}
        """Commands whose callers got an error, by number."""

    async def play(self) -> None:
        operation = self._cell.operation
        if operation != "create":
            self._actor = await self._replica()
        for before in _BEFORE[operation]:
            await self._do(before)
        if operation != "delete":
            await self._harmed(operation)
        for after in _AFTER.get(operation, ()):
            await self._do(after)
        if self._meeting is not None and operation != "delete":
            await self._meeting.is_over.wait()  # what is done now must succeed
        await self._judge()
        if operation == "delete":
            await self._harmed(operation)
        else:
            await self._do("delete")
        await self._judge_end()

    async def end(self) -> None:
        if self._harm is not None and not self._harm.done():
            self._harm.cancel()
            await asyncio.gather(self._harm, return_exceptions=True)
        await self._gate.aclose()
        if self._actor is not None:
            if self._actor.is_suspended():
                self._actor.resume()
            await self._actor.kill()

    # --- steps ------------------------------------------------------------------------------------

    async def _do(self, operation: Operation) -> None:
        """A box that dies, or an engine that is down, may cost its caller an error. The caller
        tries again, except for commands: these must not run twice.
        """
        meeting = self._meeting
        for is_first in (True, False):
            is_harmed = operation == self._cell.operation
            has_died = self.outcome.kills > 0
            is_down = meeting is not None and has_died and not meeting.is_over.is_set()
            try:
                await self._step(operation)
                return
            except SandboxError as error:
                if self._cell.victim == "actor" or not (is_harmed or is_down):
                    raise
                number = _NUMBERS.get(operation)
                if number is not None:
                    self._failed[number] = f"{error.error_code}: {error}"
                    self.outcome.unknown_outcomes += 1
                    return
                if not is_first:
                    raise
                if meeting is not None:
                    await meeting.is_over.wait()

    async def _step(self, operation: Operation) -> None:
        match operation:
            case "create" | "restore":
                await self._session.start()
            case "exec" | "wake":
                await self._command(_NUMBERS[operation])
            case "pty":
                await self._type()
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
        self._check_said(number, done.stdout.decode())

    def _check_said(self, number: int, said: str) -> None:
        self._told += 1
        # one whose caller got an error may have run
        wanted = [f"did-{number}-of-{self._told + n}" for n in range(len(self._failed) + 1)]
        right = any(it in said for it in wanted)
        self.outcome.check(right, f"command {number} said {said!r}, none of {wanted}")

    async def _type(self) -> None:
        self.outcome.tool_calls += 1
        self._asked.append(2)
        opened = await self._session.pty_exec_start("sh", tty=True, yield_time_s=0.25)
        if opened.process_id is None:
            raise AssertionError(f"the terminal has ended: {opened}")
        typed = f"{QUICK.line(2)}; exit\n"
        said = await self._session.pty_write_stdin(
            session_id=opened.process_id, chars=typed, yield_time_s=10.0
        )
        self._check_said(2, said.output.decode(errors="replace"))

    # --- harm -------------------------------------------------------------------------------------

    async def _replica(self, **given: Any) -> Program:
        more = {**_ALONE, **given.pop("more", {})}
        return await self._fleet.replica(SANDBOX, node=self._node, more=more, **given)

    async def _harmed(self, operation: Operation) -> None:
        """Do it while something dies at the point."""
        await self._arm()
        await self._do(operation)
        assert self._harm is not None
        try:
            async with asyncio.timeout(REACHED_WITHIN_S):
                await self._harm
        except TimeoutError:
            raise AssertionError(f"{self._cell.point} was not reached") from None

    async def _arm(self) -> None:
        """Replace the actor by one that is armed."""
        if self._actor is not None:
            await self._actor.kill()
        if self._cell.is_call:
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            gate = await self._gate.enter_async_context(self._new_gate(reached))
            self._actor = await self._replica(more={"DOCKER_HOST": gate.url})
            self._harm = asyncio.ensure_future(self._after_call(reached))
            return
        manner = "" if self._cell.victim == "actor" else ":stop"
        at = f"{self._cell.point}:{self._cell.count}{manner}"
        self._actor = await self._replica(crash_at=at)
        self._harm = asyncio.ensure_future(self._at_point(self._actor))

    def _new_gate(self, reached: asyncio.Future[None]) -> EngineGate:
        _, call, when = self._cell.point.split(".")
        moment: When = "before" if when == "before" else "after"

        async def harm() -> bool:
            await self._kill()
            if not reached.done():
                reached.set_result(None)
            return self._cell.victim == "box"

        path = Path(tempfile.mkdtemp(prefix="sandstream-gate-", dir="/tmp"))
        self._gate.callback(path.rmdir)
        socket = Path(self._fleet.engine_url.removeprefix("unix://"))
        return EngineGate(path / "s", socket, call, moment, harm)

    async def _after_call(self, reached: asyncio.Future[None]) -> None:
        await reached
        if self._cell.victim == "actor":
            self._actor = await self._replica()

    async def _at_point(self, armed: Program) -> None:
        if self._cell.victim == "actor":
            code = await armed.wait(REACHED_WITHIN_S)
            assert code == -9, armed.errors()
            await armed.kill()
            self.outcome.kills += 1
            self._actor = await self._replica()
            return
        await armed.suspended(REACHED_WITHIN_S)
        try:
            await self._kill()
        finally:
            armed.resume()

    async def _kill(self) -> None:
        self.outcome.kills += 1
        if self._cell.victim == "actor":
            assert self._actor is not None
            await self._actor.kill()
        elif self._cell.victim == "engine":
            assert self._meeting is not None
            self._room.release()  # so that all can come
            try:
                await self._meeting.arrive()
            finally:
                await self._room.acquire()
        else:
            record = await self._fleet.record_of(self._session.sandbox_id)
            assert await self._fleet.kill_main_process(record.key), "no container ran"

    # --- evidence ---------------------------------------------------------------------------------

    async def _judge(self) -> None:
        """What the counter says: in the box, and in the checkpoint that it was restored from."""
        await self._command(_LAST)
        lines = (await self._read("counter")).split()
        ran = Counter(int(it) for it in lines)
        if self._cell.operation in ("close", "restore"):
            record = await self._fleet.record_of(self._session.sandbox_id)
            saved = (await self._fleet.saved(record, "counter")).split()
            self.outcome.check(lines == [*saved, str(_LAST)], f"saved {saved}, restored {lines}")
        self.outcome.check(await self._read("given/greeting.txt") == "hello\n", "no greeting")
        for number in self._asked:
            times = ran.pop(number, 0)
            self.outcome.effects += times
            self.outcome.repeated_effects += max(0, times - 1)
            failed = self._failed.get(number, "")
            right = times <= 1 if failed else times == 1
            self.outcome.check(right, f"command {number} ran {times} times; failure: {failed!r}")
        self.outcome.check(not ran, f"unknown commands ran: {ran}")

    async def _read(self, path: str) -> str:
        done = await self._session.exec(f"cat {path}")
        return done.stdout.decode()

    async def _judge_end(self) -> None:
        record = await self._fleet.record_of(self._session.sandbox_id)
        self.outcome.check(record.state == "deleted", f"its sandbox is {record.state}")
        if self._meeting is not None:
            await self._meeting.is_over.wait()  # only an engine that is up can be asked

        async def left() -> list[str]:
            of = [it for it in await self._fleet.containers() if self._is_mine(it)]
            return [*(str(it["Names"]) for it in of), *self._fleet.files(self._node)]

        async def none_left() -> bool:
            return not await left()

        try:
            await eventually(none_left, within_s=40)
        except AssertionError:
            self.outcome.problems.append(f"left: {await left()}")

    def _is_mine(self, container: dict[str, object]) -> bool:
        labels = container["Labels"]
        assert isinstance(labels, dict)
        return labels.get("io.sandstream.sandbox") == self._session.sandbox_id
