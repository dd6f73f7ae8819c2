"""Who makes a box may die at any time: there is one box or none, and it can be found."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import msgspec
import pytest
from providers.local.local_boxes import (
    groups_with,
    local_provider,
    new_spec,
    pids_with,
    record_of,
    said,
)
from sandstream_providers.interface import ExecSpec
from sandstream_providers.local.records import Layout
from sandstream_providers.processes import is_alive, until

MAKER = Path(__file__).parent / "maker.py"


class Maker:
    """Another process of this machine that makes the box."""

    def __init__(self, home: Path, key: str, isolation: str = "required") -> None:
        argv = [sys.executable, str(MAKER), str(home), key, isolation]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Maker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def line(self) -> str:
        return self._stdout.readline().strip()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._stdout.close()

    @property
    def _stdout(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout


def agents_of(key: str) -> list[int]:
    """The first processes of boxes of this key: there must never be two."""
    return [pid for pid in pids_with(f"/.sandstream/{key}") if _is_first(pid)]


def _is_first(pid: int) -> bool:
    """In its own process table. The one that starts commands is a copy of it, and is not."""
    program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    numbers = re.findall(r"NSpid:(.*)", Path(f"/proc/{pid}/status").read_text())[0].split()
    return b"python" in program and numbers[-1] == "1"


@pytest.mark.parametrize("isolation", ["required", "none"])
def test_a_box_and_its_commands_outlive_their_maker(tmp_path: Path, isolation: str) -> None:
    spec = new_spec()
    with Maker(tmp_path, spec.key, isolation) as maker:
        assert maker.line() == "ready"
        made, session = maker.line().split()
        assert made == "made"
        before = record_of(tmp_path, spec.key)
        maker.kill()

    async def main() -> None:
        async with local_provider(
            tmp_path, isolation="none" if isolation == "none" else "required"
        ) as provider:
            box = await provider.get(spec.key)
            assert box is not None
            assert record_of(tmp_path, spec.key).inner == before.inner
            output = await box.interact("look", int(session), b"", wait_s=0.3)
            assert output.state == "running"
            assert output.stdout
            await box.kill("count")
            ended = await box.run("count", ExecSpec(argv=["never"], cwd=box.root))
            assert (ended.state, ended.killed) == ("exited", "cancelled")

    asyncio.run(main())


def test_two_processes_make_one_box(tmp_path: Path) -> None:
    spec = new_spec()

    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            await provider.check()
            with Maker(tmp_path, spec.key) as one, Maker(tmp_path, spec.key) as other:
                assert [one.line(), other.line()] == ["ready", "ready"]
                sessions = {one.line(), other.line()}
                assert len(sessions) == 1, "both started the same command in the same box"
                assert len(agents_of(spec.key)) == 1

    asyncio.run(main())
    assert agents_of(spec.key) == []


def test_a_box_is_not_lost_whose_maker_knew_only_its_launcher(tmp_path: Path) -> None:
    """The maker died between the two entries; then bubblewrap's outer process is killed."""

    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            spec = new_spec()
            await provider.create(spec)
            record = record_of(tmp_path, spec.key)
            Layout(tmp_path).write(msgspec.structs.replace(record, inner=None))
            assert await provider.get(spec.key) is not None
            assert record_of(tmp_path, spec.key).inner == record.inner
            assert record.outer is not None
            os.kill(record.outer.pid, signal.SIGKILL)
            assert await until(lambda: not is_alive(record.outer), timeout_s=20)
            box = await provider.get(spec.key)
            assert box is not None
            assert await said(box, "echo fine") == "fine\n"
            assert len(agents_of(spec.key)) == 1
            await provider.delete(spec.key)
            assert pids_with(spec.key) == []

    asyncio.run(main())


@pytest.mark.parametrize("delay_ms", [0, 3, 6, 10, 15, 25, 40, 60])
def test_a_maker_that_dies_on_the_way_leaves_no_second_box(tmp_path: Path, delay_ms: int) -> None:
    """The delay is no synchronisation: it only makes the moments of death differ."""
    spec = new_spec()

    async def main() -> None:
        with Maker(tmp_path, spec.key) as maker:
            assert maker.line() == "ready"
            await asyncio.sleep(delay_ms / 1000)
            maker.kill()
        async with local_provider(tmp_path) as provider:
            box = await provider.create(spec)
            assert await said(box, "echo fine") == "fine\n"
            assert len(agents_of(spec.key)) == 1
            assert is_alive(record_of(tmp_path, spec.key).inner)
            await provider.delete(spec.key)
        assert pids_with(spec.key) == []
        assert groups_with(spec.key) == []

    asyncio.run(main())
