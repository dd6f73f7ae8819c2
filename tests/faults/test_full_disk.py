"""The disk of the NATS server is full, and then it is not: said everywhere, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from faults.installation import Installation, fill
from sandstream_bus.bus import Bus
from sandstream_bus.errors import StoreUnwritable
from support.nats_server import open_bus
from support.waiting import until

from sandstream.testing import ScriptedModel, script_for, text, tool_call

FULL = "no space left on its disk"
RESTART = "Free disk space; restart nats-server then: it does not write again by itself."


def conversation(name: str) -> Any:
    return script_for(name, [tool_call("act", {"name": name}), text(f"{name} is done.")])


async def _fill_requests(bus: Bus) -> None:
    """What is left of a page of the stream takes some bytes, though the disk is full."""
    with pytest.raises(StoreUnwritable, match=FULL):
        for number in range(9):
            await bus.connection.publish(
                "sandstream.ask.x.run.y.cancel",
                os.urandom(8000),
                msg_id=f"{number}",
                budget_s=3.0,
            )


def test_a_full_disk_is_named_everywhere_and_work_goes_on_after_it(tmp_path: Path) -> None:
    async def main(here: Installation) -> None:
        waiting = asyncio.ensure_future(here.cli("submit", "clerk", "first", "--wait"))
        await until(lambda: here.effects == ["first"], what="the call is under way")
        await asyncio.to_thread(here.fill_disk)
        here.open_gate("first")
        here.open_gate("second")

        line = await here.actors["worker"].says(FULL)
        assert "sandstream: warning: work waits: the NATS server at nats://127.0.0.1:" in line
        assert RESTART in line
        async with open_bus(here.server) as bus:
            await _fill_requests(bus)
        submit = here.begin("submit", "submit", "clerk", "second", "--wait")
        line = await submit.says(FULL)
        assert line.startswith("sandstream: waiting: the NATS server at")
        (found,) = await here.doctor("store")
        assert found["state"] == "problem"
        assert FULL in found["found"]
        assert found["todo"] == RESTART

        await asyncio.to_thread(here.free_disk)
        await asyncio.to_thread(here.server.restart)
        done = await waiting
        assert (done.code, done.out) == (0, "first is done.\n")
        assert await submit.ended() == 0, submit.said
        assert here.effects == ["first", "second"]
        await here.actors["worker"].says("sandstream: warning: work continues after")
        assert here.actors["worker"].count(FULL) == 1
        (found,) = await here.doctor("store")
        assert found["state"] == "ok"

    with (
        ScriptedModel(conversations=[conversation("first"), conversation("second")]) as model,
        Installation(tmp_path / "it", model.base_url, disk_mb=24) as here,
    ):
        here.start_all()
        asyncio.run(main(here))


def test_a_caller_with_a_budget_gets_the_cause_as_an_error(tmp_path: Path) -> None:
    async def main(here: Installation) -> None:
        async with open_bus(here.server) as bus:
            await asyncio.to_thread(here.fill_disk)
            await _fill_requests(bus)

    with Installation(tmp_path / "it", "http://127.0.0.1:1", disk_mb=24) as here:
        asyncio.run(main(here))


def test_the_private_server_is_started_again_when_there_is_space(tmp_path: Path) -> None:
    home = tmp_path / "it" / "home"

    async def main(here: Installation) -> None:
        waiting = asyncio.ensure_future(here.cli("submit", "clerk", "first", "--wait"))
        await until(lambda: here.effects == ["first"], what="the call is under way")
        await asyncio.to_thread(fill, home / "ballast")
        here.open_gate("first")
        line = await here.actors["up"].says(FULL)
        assert "Free disk space; the private server restarts by itself then." in line
        (found,) = await here.doctor("disk")
        assert found["state"] == "problem"
        (home / "ballast").unlink()
        done = await waiting
        assert (done.code, done.out) == (0, "first is done.\n")
        assert here.effects == ["first"]

    with (
        ScriptedModel(conversations=[conversation("first")]) as model,
        Installation(tmp_path / "it", model.base_url, disk_mb=160, private=True) as here,
    ):
        here.start("up", "up", str(here.app), "--no-sandbox", "--no-tracing", "--no-memory")
        asyncio.run(main(here))
