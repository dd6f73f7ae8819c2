"""What the tests of the local provider share: boxes by a line, commands by a line, and looking at
the machine from outside.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from sandstream_providers.interface import Box, BoxSpec, ExecSpec, Output
from sandstream_providers.local import LocalProvider
from sandstream_providers.local.cgroups import Hierarchies
from sandstream_providers.local.records import BoxRecord, Layout

OWNER = "tests"
_numbers = itertools.count()


def new_spec(**fields: Any) -> BoxSpec:
    key = fields.pop("key", None) or f"t-{uuid.uuid4().hex[:12]}"
    return BoxSpec(key=key, labels={"owner": OWNER}, **fields)


@contextlib.asynccontextmanager
async def local_provider(home: Path, **options: Any) -> AsyncIterator[LocalProvider]:
    """A provider whose boxes are gone afterwards."""
    provider = LocalProvider(home, **options)
    try:
        yield provider
    finally:
        for info in await provider.list_owned(OWNER):
            await provider.delete(info.key)
        await provider.close()


async def run(box: Box, *argv: str, **fields: Any) -> Output:
    spec = ExecSpec(argv=list(argv), cwd=fields.pop("cwd", box.root), timeout_s=40, **fields)
    return await box.run(f"op-{next(_numbers)}-{uuid.uuid4().hex[:8]}", spec)


async def sh(box: Box, script: str, **fields: Any) -> Output:
    return await run(box, "sh", "-c", script, **fields)


async def said(box: Box, script: str) -> str:
    """What a script wrote; it must succeed."""
    output = await sh(box, script)
    assert output.exit_code == 0, output
    return output.stdout.decode()


def record_of(home: Path, key: str) -> BoxRecord:
    record = Layout(home).read(key)
    assert record is not None
    return record


def outer_pid(home: Path, key: str) -> int:
    outer = record_of(home, key).outer
    assert outer is not None
    return outer.pid


def inner_pid(home: Path, key: str) -> int:
    inner = record_of(home, key).inner
    assert inner is not None
    return inner.pid


async def without_groups(provider: LocalProvider) -> None:
    """As on a machine where no control group is writable."""
    await provider.check()
    machine = provider.host.machine
    assert machine is not None
    provider.host.machine = msgspec.structs.replace(machine, groups=Hierarchies())


def pids_with(marker: str) -> list[int]:
    """Living processes of this machine with a text in their command line."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            with contextlib.suppress(OSError):
                if marker.encode() in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
    return found


def pids_in(groups: list[str]) -> set[int]:
    """The processes that are in all of these control groups, or below them."""
    found = [
        {pid for file in Path(group).rglob("cgroup.procs") for pid in file.read_text().split()}
        for group in groups
    ]
    return {int(pid) for pid in set.intersection(*found)}


def values_in(groups: list[str]) -> dict[str, str]:
    """The limits that are set in control groups, by the name of their file; for memory, those of
    the commands alone.
    """
    names = ("cpu.cfs_quota_us", "cpu.max", "pids.max", "memory.max", "memory.limit_in_bytes")
    folders = [folder for group in groups for folder in (Path(group), Path(group) / "commands")]
    files = [folder / name for folder in folders for name in names]
    return {file.name: file.read_text().strip() for file in files if file.exists()}


def names_below(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


def groups_with(marker: str) -> list[Path]:
    """Control groups of boxes. Not all of the tree: other tests' groups come and go in it."""
    top = Path("/sys/fs/cgroup")
    ours = [top / "sandstream", *(path / "sandstream" for path in top.iterdir())]
    return [path for folder in ours for path in folder.glob(f"*{marker}*")]
