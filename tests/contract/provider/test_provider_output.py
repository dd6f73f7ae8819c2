"""Talking to running commands, and what they say: live, since the last answer, binary, too much."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest
from contract.stage import Heard, Stage, new_op, place_in, run, sh, works
from sandstream_providers.interface import Box, Limits, NoSuchSession, Output, StdinClosed

MB = 1024 * 1024


def test_output_comes_in_order_with_offsets(stage: Stage) -> None:
    async def story() -> None:
        heard = Heard()
        script = "for i in $(seq 2000); do echo out $i; echo err $i >&2; done"
        output = await sh(await stage.box(), script, on_output=heard)
        assert heard.of("stdout") == output.stdout
        assert heard.of("stderr") == output.stderr
        assert output.stdout == "".join(f"out {i}\n" for i in range(1, 2001)).encode()

    stage.run(story())


def test_output_comes_while_the_command_runs(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        heard, op = Heard(), new_op()
        task = asyncio.create_task(
            sh(box, "echo one; read line; echo two", op=op, on_output=heard, keep_stdin=True)
        )
        await heard.until(b"one\n")
        assert not task.done()
        session = (await sh(box, "", op=op, wait_s=0)).session
        await box.interact(new_op(), session, b"\n", wait_s=0)
        assert (await task).stdout == b"one\ntwo\n"
        assert heard.of("stdout") == b"one\ntwo\n"

    stage.run(story())


def test_binary_output_is_not_touched(stage: Stage) -> None:
    async def story() -> None:
        heard, place = Heard(), await place_in(await stage.box())
        await place.write("all", bytes(range(256)) * 1000)
        output = await run(place.box, "cat", place.at("all"), on_output=heard)
        assert output.stdout == bytes(range(256)) * 1000 == heard.of("stdout")

    stage.run(story())


def test_much_output_within_the_limit_is_whole(stage: Stage) -> None:
    async def story() -> None:
        script = "head -c 12000000 /dev/urandom | tee /dev/stderr"
        output = await sh(await stage.box(), script)
        assert len(output.stdout) == 12_000_000
        assert hashlib.sha256(output.stdout).digest() == hashlib.sha256(output.stderr).digest()
        assert output.dropped == 0

    stage.run(story())


def test_output_beyond_the_limit_loses_its_middle(stage: Stage) -> None:
    async def story() -> None:
        async with stage.fresh(limits=Limits(output_mb=1)) as box:
            op = new_op()
            script = "seq 400000; echo the end"
            said = "".join(f"{i}\n" for i in range(1, 400_001)).encode() + b"the end\n"
            for _ in range(2):  # the same outcome when asked again
                output = await sh(box, script, op=op)
                assert output.exit_code == 0
                assert len(output.stdout) <= MB
                assert len(output.stdout) + output.dropped == len(said)
                half = 500_000
                assert output.stdout[:half] == said[:half]
                assert output.stdout[-half:] == said[-half:]
            await works(box)

    stage.run(story())


async def _talking(box: Box, script: str, **fields: Any) -> tuple[str, Output]:
    op = new_op()
    return op, await sh(box, script, op=op, wait_s=0, keep_stdin=True, **fields)


async def _answers(box: Box, session: int, data: bytes, until: bytes, whole: bytes = b"") -> bytes:
    """What is said in answer to some input, in as many answers as it takes. ``whole``: what the
    answer to the start said already.
    """
    async with asyncio.timeout(30):
        while until not in whole:
            output = await box.interact(new_op(), session, data, wait_s=0.1)
            whole += output.stdout
            data = b""
    return whole


def test_each_answer_begins_where_the_one_before_ended(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        op, started = await _talking(box, "while read line; do echo got $line; done; echo bye")
        assert started.stdout == b""
        for word in (b"one\n", b"two\n"):
            assert await _answers(box, started.session, word, b"\n") == b"got " + word
        # the operation that started it gives what was said since its own beginning
        again = await sh(box, "", op=op, wait_s=0)
        assert (again.state, again.stdout) == ("running", b"got one\ngot two\n")
        await box.kill(op)

    stage.run(story())


def test_input_is_written_once(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        op, started = await _talking(box, "read line; echo got $line; read line; echo and $line")
        talk = new_op()
        first = await box.interact(talk, started.session, b"it\n", wait_s=1)
        async with stage.another_process() as other:
            theirs = await other.get(box.key)
            assert theirs is not None
            again = await theirs.interact(talk, started.session, b"it\n", wait_s=1)
        assert first.stdout == again.stdout == b"got it\n"
        assert (await sh(box, "", op=op, wait_s=0)).state == "running"
        await box.interact(new_op(), started.session, b"that\n", wait_s=30)
        assert (await sh(box, "", op=op)).stdout == b"got it\nand that\n"

    stage.run(story())


def test_the_end_of_a_command_is_told(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        _, started = await _talking(box, "read line; echo $line; exit 4")
        heard = Heard()
        ended = await box.interact(
            new_op(), started.session, b"last words\n", wait_s=30, on_output=heard
        )
        assert (ended.state, ended.exit_code, ended.stdout) == ("exited", 4, b"last words\n")
        assert heard.of("stdout") == b"last words\n"
        with pytest.raises(NoSuchSession):
            await box.interact(new_op(), started.session, b"", wait_s=0)

    stage.run(story())


def test_nobody_to_talk_to(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        with pytest.raises(NoSuchSession):
            await box.interact(new_op(), 1, b"hello", wait_s=0)
        op = new_op()
        started = await run(box, "sleep", "30", op=op, wait_s=0)
        with pytest.raises(StdinClosed):
            await box.interact(new_op(), started.session, b"hello", wait_s=0)
        looked = await box.interact(new_op(), started.session, b"", wait_s=0)
        assert looked.state == "running"
        await box.kill(op)

    stage.run(story())


@pytest.mark.needs("pty")
def test_a_terminal_echoes(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        op, started = await _talking(box, "test -t 0 && test -t 2; echo tty $?; cat", tty=True)
        greeting = await _answers(box, started.session, b"", b"\n", started.stdout)
        assert greeting == b"tty 0\r\n"
        said = await _answers(box, started.session, b"hello\n", b"hello\r\nhello\r\n")
        assert said == b"hello\r\nhello\r\n"
        output = await sh(box, "", op=op, wait_s=0)
        assert output.stderr == b""
        await box.interact(new_op(), started.session, b"\x04", wait_s=30)
        assert (await sh(box, "", op=op)).exit_code == 0

    stage.run(story())


@pytest.mark.needs("pty")
def test_control_c_interrupts_what_runs_in_a_terminal(stage: Stage) -> None:
    async def story() -> None:
        box = await stage.box()
        op, started = await _talking(box, "echo up; sleep 60; echo not reached", tty=True)
        await _answers(box, started.session, b"", b"up", started.stdout)
        ended = await box.interact(new_op(), started.session, b"\x03", wait_s=30)
        assert (ended.state, ended.exit_code, ended.killed) == ("exited", 130, "")
        assert b"not reached" not in (await sh(box, "", op=op)).stdout
        await works(box)

    stage.run(story())
