"""kill -9 around a retry: only the failed step is repeated."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from chaos.processes import Program
from chaos.retry_cells import RetryCell, retry_cells
from sandstream_bus.embedded.lease import stop_server
from sandstream_bus.wire.messages import RunDone, RunReopened
from support.idle import is_idle
from support.waiting import eventually

from sandstream.client import Client
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel, Step, script_for, text, tool_call

pytestmark = pytest.mark.timeout(120)
_WITHIN_S = 60.0


class Place:
    """Its own home, and the programs that are started in it."""

    def __init__(self, directory: Path, model: ScriptedModel) -> None:
        self.directory = directory
        self.home = directory / "home"
        self._ledger = directory / "ledger"
        self._model = model
        self._programs: list[Program] = []

    async def start(self, what: str, key: str, crash_at: str | None = None) -> Program:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        env = kept | {
            "SANDSTREAM_HOME": str(self.home),
            "OPENAI_BASE_URL": self._model.base_url,
            "OPENAI_API_KEY": "none",
            "CHAOS_LEDGER": str(self._ledger),
        }
        stderr = self.directory / f"{len(self._programs)}.log"
        program = await Program.start(
            "retry_desk", what, key, env=env, stderr=stderr, crash_at=crash_at
        )
        self._programs.append(program)
        return program

    def break_it(self) -> None:
        self._ledger.with_name("broken").touch()

    def mend_it(self) -> None:
        self._ledger.with_name("broken").unlink()

    def effects(self) -> Counter[str]:
        return Counter(line.split()[1] for line in self._ledger.read_text().splitlines())

    async def close(self) -> None:
        for program in self._programs:
            await program.kill()
        if self.home.exists():
            await stop_server(self.home)


def steps(key: str) -> list[Step]:
    call = json.dumps({"key": key})
    return [tool_call("good", call), tool_call("below", {"input": f"<{key}> sub"}), text("all")]


def below(key: str) -> list[Step]:
    call = json.dumps({"key": key})
    return [tool_call("good", call), tool_call("flaky", call), text("part")]


@pytest.mark.parametrize("cell", retry_cells(), ids=lambda it: it.name)
def test_a_retry_survives_a_kill(cell: RetryCell, tmp_path: Path) -> None:
    async def main() -> None:
        scripts = [script_for("[k]", steps("k")), script_for("<k>", below("k"))]
        async with ScriptedModel(conversations=scripts, strict=False) as model:
            place = Place(tmp_path, model)
            try:
                if cell.where == "program":
                    await kill_program(place, model, cell)
                elif cell.where == "caller":
                    await kill_caller(place, model, cell)
                elif cell.where == "worker":
                    await kill_worker(place, model, cell)
                else:
                    await kill_task_taker(place, model, cell)
            finally:
                await place.close()

    asyncio.run(main())


async def kill_program(place: Place, model: ScriptedModel, cell: RetryCell) -> None:
    place.break_it()
    first = await place.start("run", "k")
    assert await first.wait(_WITHIN_S) == 1 and "the service is down" in first.errors()
    place.mend_it()
    second = await place.start("run", "k", cell.point)
    assert await second.wait(_WITHIN_S) == -9, f"not reached: {second.errors()}"
    third = await place.start("run", "k")
    assert await third.line(_WITHIN_S) == "all", third.errors()
    await judge(place, model, cell)


async def kill_caller(place: Place, model: ScriptedModel, cell: RetryCell) -> None:
    async with await Client.connect(Settings(home=place.home)) as client:
        place.break_it()
        await (await place.start("serve", "")).ready()
        await client.submit("above", "[k] work", key="k")
        assert (await client.wait("k")).status == "failed"
        place.mend_it()
        first = await place.start("retry", "k", cell.point)
        assert await first.wait(_WITHIN_S) == -9, f"not reached: {first.errors()}"
        second = await place.start("retry", "k")
        await second.ready()
        async with asyncio.timeout(_WITHIN_S):
            assert (await client.wait("k")).status == "completed"
    await judge(place, model, cell)


async def kill_worker(place: Place, model: ScriptedModel, cell: RetryCell) -> None:
    """The failed call is redelivered after the retry, which requests it anew."""
    async with await Client.connect(Settings(home=place.home)) as client:
        place.break_it()
        await (await place.start("actors", "")).ready()
        armed = await place.start("serve", "", f"{cell.point}:3")  # the third call is the one
        await armed.ready()
        await client.submit("above", "[k] work", key="k")
        assert await armed.wait(_WITHIN_S) == -9, f"not reached: {armed.errors()}"
        async with asyncio.timeout(_WITHIN_S):
            assert (await client.wait("k")).status == "failed"
        place.mend_it()
        await client.retry("k")
        await (await place.start("serve", "")).ready()
        async with asyncio.timeout(_WITHIN_S):
            assert (await client.wait("k")).status == "completed"
        await eventually(lambda: is_idle(client.bus, "tools-app"), within_s=_WITHIN_S, what="idle")
    await judge(place, model, cell)


async def kill_task_taker(place: Place, model: ScriptedModel, cell: RetryCell) -> None:
    async with await Client.connect(Settings(home=place.home)) as client:
        alone = await place.start("actors", "")
        await alone.ready()
        await client.submit("above", "[k] work", key="k")
        assert (await client.wait("k")).status == "failed"
        await alone.kill()
        armed = await place.start("serve", "", cell.point)
        await armed.ready()
        asking = await place.start("retry", "k")
        assert await armed.wait(_WITHIN_S) == -9, f"not reached: {armed.errors()}"
        await (await place.start("serve", "")).ready()
        await asking.wait(_WITHIN_S)  # it may have given up, but what it asked for is stored

        async def is_accepted() -> bool:
            return any(isinstance(it.event, RunReopened) for it in await client.events("k"))

        await eventually(is_accepted, within_s=_WITHIN_S, what="the retry")
        async with asyncio.timeout(_WITHIN_S):
            assert (await client.wait("k")).status == "completed"
        events = [it.event for it in await client.events("k")]
        assert sum(isinstance(it, RunReopened) for it in events) == 1
        assert sum(isinstance(it, RunDone) for it in events) == 2
    assert place.effects() == {"good": 2, "flaky": 1}
    assert len(model.requests) == 6


async def judge(place: Place, model: ScriptedModel, cell: RetryCell) -> None:
    effects = place.effects()
    assert effects["good"] == 2  # one of each run, whoever died
    assert effects["failed"] == 1
    assert 1 <= effects["flaky"] <= 1 + cell.effects
    assert 6 <= len(model.requests) <= 6 + cell.model_calls
    async with await Client.connect(Settings(home=place.home)) as client:
        events = [it.event for it in await client.events("k")]
        assert sum(isinstance(it, RunReopened) for it in events) == 1
        assert sum(isinstance(it, RunDone) for it in events) == 2
        assert (await client.get("k")).status == "completed"
