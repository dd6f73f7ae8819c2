"""Commands: once per operation, how they end, how they are ended, and that the next one works."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest
from contract.stage import Heard, Stage, new_op, place_in, run, said, sh, works
from sandstream_providers.interface import CannotExecute, ExecSpec, LimitReached, Limits, Output

HIDES = """
trap '' TERM HUP
(setsid sh -c 'while :; do echo x >>"$1"; sleep 0.01; done' hidden "$1" &)
until [ -e "$1" ]; do sleep 0.01; done
echo hidden
sleep 60
"""
"""Ignores polite signals and leaves a grandchild in a session of its own, whose clock grows."""
STILL = """
first=$(wc -c <"$1")
sleep 0.3
[ "$(wc -c <"$1")" = "$first" ] || exit 9
"""


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 1", 1), ("exit 255", 255), ("kill -9 $$", 137)]
)
def test_exit_codes_are_those_of_a_shell(stage: Stage, script: str, code: int) -> None:
    output = stage.run(_in_shared(stage, script))
    assert (output.state, output.exit_code, output.killed) == ("exited", code, "")


async def _in_shared(stage: Stage, script: str, **fields: Any) -> Output:
    return await sh(await stage.box(), script, **fields)


def test_streams_are_kept_apart_and_stdin_is_empty(stage: Stage) -> None:
    async def story() -> None:
        output = await sh(await stage.box(), "echo out; echo err >&2; cat; echo end")
        assert (output.stdout, output.stderr) == (b"out\nend\n", b"err\n")
        assert 1000 <= output.session <= 99999
        assert output.dropped == 0

    stage.run(story())


def test_the_working_directory(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        place = await place_in(box)
        await place.said("mkdir 'a b'")
        assert await said(box, "pwd", cwd=place.at("a b")) == place.at("a b") + "\n"
        with pytest.raises(CannotExecute):
            await run(box, "true", cwd=place.at("missing"))
        await place.write("file", b"")
        with pytest.raises(CannotExecute):
            await run(box, "true", cwd=place.at("file"))
        await works(box)

    stage.run(story())


def test_what_cannot_be_executed(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        place = await place_in(box)
        await place.write("plain", b"echo hi", mode=0o644)
        op = new_op()
        for program in ("no-such-program", place.at("plain"), place.at("gone"), place.path):
            with pytest.raises(CannotExecute) as caught:
                await run(box, program, op=op)
            assert program.rpartition("/")[2] in str(caught.value)
        # an operation that started nothing may be tried again
        await place.said("printf '#!/bin/sh\\necho hi' > gone; chmod +x gone")
        assert (await run(box, place.at("gone"), op=op)).stdout == b"hi\n"

    stage.run(story())


def test_an_operation_runs_once(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        op = new_op()
        script = "echo x >> count; echo said; exit 3"
        outputs = await asyncio.gather(*(place.sh(script, op=op) for _ in range(3)))
        outputs.append(await place.sh(script, op=op))
        async with stage.another_process() as other:
            box = await other.get(place.box.key)
            assert box is not None
            outputs.append(await sh(box, script, op=op, cwd=place.path))
        assert {(it.stdout, it.exit_code, it.session) for it in outputs} == {
            (b"said\n", 3, outputs[0].session)
        }
        assert await place.read("count") == b"x\n"

    stage.run(story())


def test_another_process_attaches_to_a_running_command(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        op = new_op()
        script = "echo x >> count; echo first; read line; echo $line"
        started = await place.sh(script, op=op, wait_s=0, keep_stdin=True)
        heard = Heard()
        async with stage.another_process() as other:
            box = await other.get(place.box.key)
            assert box is not None
            given = {"op": op, "cwd": place.path, "keep_stdin": True, "on_output": heard}
            task = asyncio.create_task(sh(box, script, **given))
            await heard.until(b"first\n")
            await place.box.interact(new_op(), started.session, b"second\n", wait_s=10)
            output = await task
        assert (output.stdout, output.exit_code) == (b"first\nsecond\n", 0)
        assert heard.of("stdout") == b"first\nsecond\n"
        assert await place.read("count") == b"x\n"

    stage.run(story())


def test_a_wait_that_is_over_leaves_the_command_running(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        op = new_op()
        script = "read line; echo $line"
        first = await sh(box, script, op=op, wait_s=0.05, keep_stdin=True)
        assert (first.state, first.exit_code, first.stdout) == ("running", None, b"")
        # counted from the command's start: it is over at once
        again = await sh(box, script, op=op, wait_s=0.01, keep_stdin=True)
        assert again.state == "running"
        assert await box.sessions() >= 1
        await box.interact(new_op(), first.session, b"on\n", wait_s=0)
        ended = await sh(box, script, op=op, wait_s=30)
        assert (ended.state, ended.exit_code, ended.stdout) == ("exited", 0, b"on\n")

    stage.run(story())


def test_a_cancelled_wait_leaves_the_command_running(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        op, heard = new_op(), Heard()
        script = "echo up; read line; echo $line"
        task = asyncio.create_task(sh(box, script, op=op, keep_stdin=True, on_output=heard))
        await heard.until(b"up")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        running = await sh(box, script, op=op, wait_s=0)
        assert running.state == "running"
        await box.kill(op)
        assert (await sh(box, script, op=op)).killed == "cancelled"

    stage.run(story())


def test_a_timeout_ends_the_whole_tree(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        argv = ("sh", "-c", HIDES, "hides", place.at("clock"))
        output = await run(place.box, *argv, timeout_s=2.0)
        assert (output.state, output.killed) == ("exited", "timeout")
        assert output.exit_code == 137
        assert output.stdout == b"hidden\n"
        still = await run(place.box, "sh", "-c", STILL, "still", place.at("clock"))
        assert still.exit_code == 0, "a grandchild outlived the timeout"

    stage.run(story())


def test_a_timeout_comes_though_nobody_watches(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        op = new_op()
        await run(box, "sleep", "60", op=op, timeout_s=0.2, wait_s=0)
        async with asyncio.timeout(30):
            while (output := await run(box, "sleep", op=op, wait_s=0)).state == "running":
                await asyncio.sleep(0.02)
        assert output.killed == "timeout"
        assert output.exit_code in (137, 143)
        await works(box)

    stage.run(story())


def test_the_walls_of_a_box_hold_for_every_command(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh(limits=Limits(wall_s=0.3)) as box:
            for timeout_s in (None, 30.0):
                output = await run(box, "sleep", "60", timeout_s=timeout_s)
                assert output.killed == "timeout"
            await works(box)

    stage.run(story())


def test_kill_ends_the_whole_tree_of_one_command(stage: Stage) -> None:
    async def story() -> None:
        place = await place_in(await stage.box())
        op, other, heard = new_op(), new_op(), Heard()
        await run(place.box, "sleep", "30", op=other, wait_s=0)
        argv = ("sh", "-c", HIDES, "hides", place.at("clock"))
        task = asyncio.create_task(run(place.box, *argv, op=op, on_output=heard))
        await heard.until(b"hidden")
        await place.box.kill(op)
        output = await task
        assert (output.killed, output.exit_code) == ("cancelled", 137)
        still = await run(place.box, "sh", "-c", STILL, "still", place.at("clock"))
        assert still.exit_code == 0, "a grandchild outlived the kill"
        assert (await run(place.box, "sleep", op=other, wait_s=0)).state == "running"
        for unknown_or_over in (op, "op-nobody-asked"):
            await place.box.kill(unknown_or_over)
        await place.box.kill(other)

    stage.run(story())


def test_kill_all_ends_background_processes_too(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            place = await place_in(box)
            await place.write("hides", HIDES.encode())
            script = "sh hides clock >/dev/null 2>&1 & while ! test -e clock; do :; done"
            await place.said(script)
            ops = [new_op() for _ in range(3)]
            for op in ops:
                await run(box, "sleep", "60", op=op, wait_s=0)
            assert await box.sessions() == 3
            await box.kill_all()
            assert await box.sessions() == 0
            for op in ops:
                assert (await run(box, "sleep", op=op)).killed == "cancelled"
            still = await run(box, "sh", "-c", STILL, "still", place.at("clock"))
            assert still.exit_code == 0, "a background process outlived kill_all"
            await box.kill_all()
            await works(box)

    stage.run(story())


def test_a_background_process_does_not_hold_its_command(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        output = await sh(box, "sleep 30 & echo $!")
        assert output.exit_code == 0
        await said(box, f"kill {int(output.stdout)}")

    stage.run(story())


def test_stdin_is_given_and_closed(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        data = bytes(range(256)) * 4096
        output = await run(box, "sha256sum", stdin=data)
        assert output.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
        # one that does not read it is not held up
        assert (await run(box, "true", stdin=data)).exit_code == 0

    stage.run(story())


def test_big_and_odd_arguments_and_variables(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        big = "x" * 120_000
        words = ["", "a b", "'\"$HOME", "ü\n", "\udcff", big]
        output = await run(box, "printf", "%s\\0", *words)
        assert output.stdout == b"".join(
            word.encode("utf-8", "surrogateescape") + b"\0" for word in words
        )
        output = await run(box, "sh", "-c", 'printf %s "$BIG" | wc -c', env={"BIG": big})
        assert output.stdout.strip() == b"120000"
        with pytest.raises(CannotExecute):
            await run(box, "true", "x" * 200_000)  # longer than the kernel takes
        await works(box)

    stage.run(story())


def test_no_more_than_64_commands_run_at_once(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh() as box:
            ops = [new_op() for _ in range(64)]
            started = await asyncio.gather(
                *(run(box, "sleep", "60", op=op, wait_s=0) for op in ops)
            )
            assert len({output.session for output in started}) == 64
            assert await box.sessions() == 64
            refused = new_op()
            with pytest.raises(LimitReached):
                await run(box, "true", op=refused)
            assert (await run(box, "sleep", op=ops[0], wait_s=0)).state == "running"
            await box.kill(ops[0])
            # what was refused was not started, so it can be asked again
            assert (await run(box, "true", op=refused)).exit_code == 0
            await box.kill_all()
            await works(box)

    stage.run(story())


def test_a_never_ending_command_holds_up_nobody(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        op = new_op()
        await run(box, "sh", "-c", "while :; do echo y; done", op=op, wait_s=0)
        await works(box)
        await box.kill(op)
        spec = ExecSpec(argv=["sh"], cwd=box.root)
        assert (await box.run(op, spec)).killed == "cancelled"

    stage.run(story())


def test_the_first_request_of_an_operation_is_remembered(stage: Stage) -> None:
    """Also by the next life of the box: a command of a lost log must not pass for a new one."""

    async def story() -> None:
        box = await stage.box()
        op = new_op()
        assert await box.first_request(op, "7@1") == "7@1"
        assert await box.first_request(op, "7@2") == "7@1"
        assert await box.first_request(new_op(), "7@2") == "7@2"
        await stage.provider.stop(box.key)
        again = await stage.provider.get(box.key)
        assert again is not None
        assert await again.first_request(op, "7@3") == "7@1"

    stage.run(story())
