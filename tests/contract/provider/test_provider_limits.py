"""What a box may use, as far as its provider can limit it, and that it goes on afterwards."""

from __future__ import annotations

import pytest
from contract.stage import Stage, new_op, place_in, run, said, sh, works
from sandstream_providers.interface import FileWrite, Limits, NoSpace

GREEDY = (
    'BEGIN { taken = "x"; while (length(taken) < 4e8) taken = taken taken; system("sleep 60") }'
)
"""For awk: takes 400 MB, and keeps them."""
BOMB = "count=0; while [ $count -lt 200 ]; do sleep 60 & count=$((count + 1)); echo $count; done"
RUDE_BOMB = """
bomb() {
  left=$1
  while [ $left -gt 0 ]; do left=$((left - 1)); bomb $left & done
  exec sleep 61.5
}
bomb 7 &
exec sleep 61.5
"""
"""128 processes. A shell that cannot fork ends, so the first one forks only once."""


@pytest.mark.needs("limits.processes")
def test_processes(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh(limits=Limits(processes=40)) as box:
            output = await sh(box, BOMB)
            assert 20 < int(output.stdout.split()[-1]) <= 40
            await box.kill_all()
            await works(box)

    stage.run(story())


def test_a_fork_bomb_is_swept_up(stage: Stage) -> None:
    """Also without a limit: then it is a small one."""

    async def story() -> None:
        async with stage.fresh(limits=Limits(processes=60)) as box:
            for end in ("timeout", "kill", "kill_all"):
                op = new_op()
                timeout_s = 0.7 if end == "timeout" else None
                argv = ("sh", "-c", RUDE_BOMB, "rude-bomb")
                await run(box, *argv, op=op, timeout_s=timeout_s, wait_s=0.3)
                if end == "kill":
                    await box.kill(op)
                elif end == "kill_all":
                    await box.kill_all()
                output = await run(box, *argv, op=op)
                assert output.killed == ("timeout" if end == "timeout" else "cancelled")
                await works(box)
            if "isolated" in stage.provider.powers:
                words = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'"
                left = await said(box, f"{words} | grep -cxE '[r]ude-bomb|[6]1.5' || true")
                assert left == "0\n", "some of the bomb is left"

    stage.run(story())


@pytest.mark.needs("limits.memory")
def test_memory(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh(limits=Limits(memory_mb=150)) as box:
            output = await run(box, "awk", GREEDY)
            assert output.exit_code == 137
            assert output.killed in ("", "memory")
            await works(box)

    stage.run(story())


@pytest.mark.needs("limits.file")
def test_a_single_file(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh(limits=Limits(file_mb=2)) as box:
            place = await place_in(box)
            assert (await place.sh("head -c 3000000 /dev/zero > big")).exit_code != 0
            assert await place.said("wc -c < big") == f"{2 << 20}\n"
            with pytest.raises(NoSpace):
                await place.write("more", b"x" * 3_000_000)
            with pytest.raises(NoSpace):
                await box.append(new_op(), place.at("big"), b"x", place.rule, at=2 << 20)
            assert await place.said("ls") == "big\n"
            await works(box)

    stage.run(story())


@pytest.mark.needs("limits.disk")
def test_the_disk(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh(limits=Limits(disk_mb=6)) as box:
            place = await place_in(box)
            await place.write("kept", b"kept")
            assert (await place.sh("head -c 9000000 /dev/zero > big")).exit_code != 0
            before = await place.tree()
            with pytest.raises(NoSpace):
                await place.change(
                    FileWrite(path=place.at("kept"), data=b"changed"),
                    FileWrite(path=place.at("more"), data=b"x" * 500_000),
                )
            assert await place.tree() == before
            await works(box)
            await place.said("rm big; echo fine > small")
            assert await place.read("kept") == b"kept"

    stage.run(story())


@pytest.mark.needs("limits.disk")
def test_a_full_disk_in_the_middle_of_an_append(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh(limits=Limits(disk_mb=6)) as box:
            place = await place_in(box)
            part = b"x" * 1_000_000
            at = 0
            with pytest.raises(NoSpace):
                while True:
                    await box.append(new_op(), place.at("big"), part, place.rule, at=at)
                    at += len(part)
            assert (await box.stat(place.at("big"), place.rule)).size == at

    stage.run(story())


@pytest.mark.needs("limits.memory")
def test_one_greedy_box_does_not_harm_another(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh(limits=Limits(memory_mb=150)) as greedy, stage.fresh() as other:
            op = new_op()
            await sh(other, "sleep 30", op=op, wait_s=0)
            await run(greedy, "awk", GREEDY)
            assert (await sh(other, "", op=op, wait_s=0)).state == "running"

    stage.run(story())
