"""What a box may use, and that it goes on after it has tried to use more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from providers.local.local_boxes import (
    local_provider,
    new_spec,
    pids_in,
    record_of,
    run,
    said,
    sh,
    values_in,
    without_groups,
)
from sandstream_providers.interface import FileWrite, Limits, NoSpace, ProviderError, ResolveRule
from sandstream_providers.local.cgroups import (
    Hierarchies,
    find_hierarchies,
    make,
    plan,
)

GREEDY = """
import time
taken = bytearray(600 << 20)
for at in range(0, len(taken), 4096):
    taken[at] = 1
time.sleep(30)
"""
BOMB = """
import os, time
count = 0
try:
    while count < 200:
        if os.fork() == 0:
            time.sleep(60)
        count += 1
except BlockingIOError:
    pass
print(count)
"""


def test_processes(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            box = await provider.create(new_spec(limits=Limits(processes=30)))
            output = await run(box, "python3", "-c", BOMB)
            assert 20 < int(output.stdout) <= 30
            await box.kill_all()
            assert await said(box, "echo fine") == "fine\n"

    asyncio.run(main())


def test_memory_by_control_group(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            if "cgroup" not in (await provider.check())["memory"]:
                pytest.skip("no memory control group is writable here")
            box = await provider.create(new_spec(limits=Limits(memory_mb=300)))
            output = await run(box, "python3", "-c", GREEDY)
            assert output.exit_code == 137
            assert await said(box, "echo fine") == "fine\n"

    asyncio.run(main())


def test_memory_by_the_agents_watch(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            await without_groups(provider)
            box = await provider.create(new_spec(limits=Limits(memory_mb=300)))
            output = await run(box, "python3", "-c", GREEDY)
            assert output.killed == "memory"
            assert await said(box, "echo fine") == "fine\n"

    asyncio.run(main())


def test_a_single_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            box = await provider.create(new_spec(limits=Limits(file_mb=2)))
            output = await sh(box, "head -c 3000000 /dev/zero > big")
            assert output.exit_code != 0
            assert await said(box, "wc -c < big") == f"{2 << 20}\n"

    asyncio.run(main())


def test_the_disk(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            box = await provider.create(new_spec(limits=Limits(disk_mb=5)))
            assert (await sh(box, "head -c 6000000 /dev/zero > big")).exit_code != 0
            with pytest.raises(ProviderError) as caught:
                await box.change(
                    "write",
                    [FileWrite(path="/workspace/more", data=b"x" * 100_000)],
                    ResolveRule(roots=["/workspace"]),
                )
            assert isinstance(caught.value, NoSpace)
            await said(box, "rm big; echo fine > small")

    asyncio.run(main())


def test_temporary_directories_are_limited_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            box = await provider.create(new_spec())
            sizes = await said(
                box, "df -k --output=size,target /tmp /run /home /root /var/tmp /dev/shm"
            )
            for line in sizes.splitlines()[1:]:
                assert int(line.split()[0]) <= 1024 * 1024, line
            assert (await sh(box, "echo x > /dev/anything || echo x > /anything")).exit_code != 0

    asyncio.run(main())


def test_limits_are_in_the_control_groups(tmp_path: Path) -> None:
    hierarchies = find_hierarchies()
    if hierarchies.version("cpu") is None:
        pytest.skip("no cpu control group is writable here")

    async def main() -> None:
        async with local_provider(tmp_path) as provider:
            spec = new_spec(limits=Limits(cpus=0.5, processes=77, memory_mb=200, disk_mb=50))
            box = await provider.create(spec)
            await said(box, "true")
            groups = record_of(tmp_path, spec.key).cgroups
            values = values_in(groups)
            cpu = values.get("cpu.cfs_quota_us") or values["cpu.max"].split()[0]
            assert cpu == "50000"
            assert values["pids.max"] == "87"
            memory = values.get("memory.limit_in_bytes", values.get("memory.max"))
            assert memory == str(250 << 20)
            assert len(pids_in(groups)) == 3, "bubblewrap, the agent, and who starts commands"
            limited = plan(hierarchies, Path(groups[0]).name, spec.limits).commands
            assert len(pids_in([str(limited)])) == 1, "only who starts commands"

    asyncio.run(main())


def test_both_versions_of_control_groups_get_their_settings(tmp_path: Path) -> None:
    limits = Limits(cpus=1.5, memory_mb=100, processes=10)
    new, old = tmp_path / "v2", tmp_path / "old"
    for folder, files in {
        new / "box": ["memory.max", "memory.swap.max", "pids.max", "cgroup.subtree_control"],
        new / "box" / "commands": ["memory.max", "memory.swap.max", "memory.oom.group"],
        new / "box" / "agent": ["memory.max"],
        old / "box": ["cpu.cfs_quota_us", "cpu.cfs_period_us"],
    }.items():
        folder.mkdir(parents=True)
        for name in files:
            (folder / name).touch()
    hybrid = Hierarchies(
        v2=new, v2_controllers=frozenset({"memory", "pids"}), v1={"cpu": old, "memory": old}
    )
    groups = plan(hybrid, "box", limits)
    make(hybrid, groups, limits)
    assert groups.paths == [new / "box", old / "box"]
    commands, agent = new / "box" / "commands", new / "box" / "agent"
    assert (new / "box" / "cgroup.subtree_control").read_text() == "+memory"
    assert (commands / "memory.max").read_text() == str(100 << 20)
    assert (commands / "memory.swap.max").read_text() == "0"
    assert (commands / "memory.oom.group").read_text() == "0"
    assert (agent / "memory.max").read_text() == ""
    assert int((new / "box" / "memory.max").read_text()) > 100 << 20, "the agent needs some too"
    assert groups.to_join == [str(agent), str(old / "box")]
    assert groups.to_remove == [str(it) for it in (agent, commands, new / "box", old / "box")]
    assert (new / "box" / "pids.max").read_text() == "20"
    assert (old / "box" / "cpu.cfs_quota_us").read_text() == "150000"
