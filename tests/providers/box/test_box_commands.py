"""Commands in a box: output, stdin, terminals, limits, what is said when they cannot start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from providers.box.agent_process import answer, running_agent, shell
from sandstream_providers.interface import (
    CannotExecute,
    ExecSpec,
    LimitReached,
    NoSuchSession,
    Output,
    StdinClosed,
)


def test_output_and_exit_code(tmp_path: Path) -> None:
    async def main() -> Output:
        async with running_agent(tmp_path) as agent:
            return await agent.box().run("op", shell("printf 'a\\377\\0b'; echo no >&2; exit 3"))

    output = asyncio.run(main())
    assert output.state == "exited"
    assert output.exit_code == 3
    assert output.stdout == b"a\xff\0b"
    assert output.stderr == b"no\n"
    assert output.killed == ""
    assert output.dropped == 0
    assert 1000 <= output.session <= 99999


SHOW = 'pwd; printf "%s|%s|%s|%s" "$1" "$MINE" "$HOME" "$SANDSTREAM_OP"'


def test_environment_directory_and_odd_arguments(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            spec = ExecSpec(
                argv=["sh", "-c", SHOW, "sh", "\udcff x"],
                cwd=str(agent.root),
                env={"MINE": "1\udcfe"},
            )
            output = await agent.box().run("op-7", spec)
            assert output.stdout == str(agent.root).encode() + b"\n\xff x|1\xfe|/tmp|op-7"

    asyncio.run(main())


def test_a_signal_gives_the_exit_code_of_a_shell(tmp_path: Path) -> None:
    async def main() -> Output:
        async with running_agent(tmp_path) as agent:
            return await agent.box().run("op", shell("kill -9 $$"))

    assert asyncio.run(main()).exit_code == 137


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (ExecSpec(argv=["no-such-program"], cwd="/"), "no-such-program"),
        (ExecSpec(argv=["/no/such"], cwd="/"), "/no/such"),
        (ExecSpec(argv=["/etc/passwd"], cwd="/"), "/etc/passwd"),
        (ExecSpec(argv=["true"], cwd="/no/folder"), "working directory /no/folder"),
        (ExecSpec(argv=["true"], cwd="/etc/passwd"), "working directory /etc/passwd"),
        (ExecSpec(argv=[], cwd="/"), "empty"),
        (ExecSpec(argv=["true", "a\0b"], cwd="/"), "null"),
    ],
)
def test_what_cannot_be_started_is_named(tmp_path: Path, spec: ExecSpec, says: str) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            with pytest.raises(CannotExecute, match=says):
                await box.run("op", spec)
            assert (await box.run("op-2", shell("echo lives"))).stdout == b"lives\n"
            assert await box.sessions() == 0

    asyncio.run(main())


def test_stdin_given_at_the_start_is_closed_after_it(tmp_path: Path) -> None:
    async def main() -> None:
        data = bytes(range(256)) * 4096  # more than a pipe holds
        async with running_agent(tmp_path, output_bytes=4_000_000) as agent:
            box = agent.box()
            assert (await box.run("op", ExecSpec(argv=["cat"], cwd="/", stdin=data))).stdout == data
            assert (await box.run("none", ExecSpec(argv=["cat"], cwd="/"))).stdout == b""

    asyncio.run(main())


def test_talking_to_a_running_command(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            spec = shell("while read line; do echo got $line; done; echo end", keep_stdin=True)
            begun = await box.run("run", spec, wait_s=0)
            assert begun.state == "running"
            assert await box.sessions() == 1
            session = begun.session

            def say(op: str, data: bytes) -> Callable[[], Awaitable[Output]]:
                return lambda: box.interact(op, session, data, wait_s=0.1)

            first = await answer(say("say-1", b"one\n"), b"got one\n")
            assert first.state == "running"
            seen: list[bytes] = []
            second = await answer(say("say-2", b"two\n"), b"got two\n")
            again = await box.interact(
                "say-2", session, b"two\n", wait_s=0, on_output=lambda *o: seen.append(o[2])
            )
            assert again == second
            assert b"".join(seen) == b"got two\n"
            await box.kill("run")
            with pytest.raises(NoSuchSession):
                await box.interact("say-3", begun.session + 1, b"", wait_s=0)

    asyncio.run(main())


def test_the_end_is_told_once_by_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            begun = await box.run("run", shell("read x; exit 4", keep_stdin=True), wait_s=0)
            last = await box.interact("a", begun.session, b"go\n", wait_s=30)
            assert (last.state, last.exit_code) == ("exited", 4)
            assert (await box.interact("a", begun.session, b"go\n", wait_s=30)).exit_code == 4
            with pytest.raises(NoSuchSession):
                await box.interact("b", begun.session, b"", wait_s=0)

    asyncio.run(main())


def test_writing_to_a_closed_stdin(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            begun = await box.run("run", shell("sleep 60"), wait_s=0)
            with pytest.raises(StdinClosed):
                await box.interact("a", begun.session, b"x", wait_s=0)
            assert (await box.interact("b", begun.session, b"", wait_s=0)).state == "running"

    asyncio.run(main())


def test_a_terminal_echoes_and_interrupts(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            script = "trap 'echo caught; exit 7' INT; stty size; while :; do sleep 0.05; done"
            spec = shell(script, tty=True)
            begun = await answer(lambda: box.run("run", spec, wait_s=0), b"24 80\r\n")
            session = begun.session
            await answer(lambda: box.interact("a", session, b"hello", wait_s=0), b"hello")
            ended = await box.interact("b", session, b"\x03", wait_s=30)
            assert ended.exit_code == 7
            assert b"caught" in ended.stdout

    asyncio.run(main())


def test_a_terminal_is_the_controlling_one(tmp_path: Path) -> None:
    async def main() -> Output:
        async with running_agent(tmp_path) as agent:
            return await agent.box().run(
                "op", shell("test -t 0 && test -t 2 && echo yes > /dev/tty", tty=True)
            )

    assert asyncio.run(main()).stdout == b"yes\r\n"


def test_a_flood_keeps_beginning_and_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path, output_bytes=1000) as agent:
            box = agent.box()
            script = "echo begin; yes | head -c 200000000; printf end; echo small >&2"
            output = await box.run("op", shell(script))
            assert len(output.stdout) == 1000
            assert output.stdout.startswith(b"begin\ny\n")
            assert output.stdout.endswith(b"y\nend")
            assert output.dropped == 200_000_000 + 6 + 3 - 1000
            assert output.stderr == b"small\n"
            assert (agent.jobs / "op.out").stat().st_size == 1000
            assert await box.run("op", shell(script)) == output

    asyncio.run(main())


def test_output_up_to_the_limit_is_kept_whole(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path, output_bytes=3_000_000) as agent:
            box = agent.box()
            seen: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}

            def on_output(stream: str, offset: int, data: bytes) -> None:
                assert offset == len(seen[stream])
                seen[stream] += data

            script = "seq 1 400000; seq 1 100000 >&2"
            output = await box.run("op", shell(script), on_output=on_output)
            expected = b"".join(b"%d\n" % n for n in range(1, 400001))
            assert output.stdout == expected
            assert output.stderr == b"".join(b"%d\n" % n for n in range(1, 100001))
            assert seen == {"stdout": output.stdout, "stderr": output.stderr}
            assert output.dropped == 0

    asyncio.run(main())


def test_output_comes_while_the_command_runs(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            came = asyncio.Event()
            spec = shell("echo first; read x; echo second", keep_stdin=True)
            begun = await box.run("op", spec, wait_s=0)
            running = asyncio.create_task(box.run("op", spec, on_output=lambda *_: came.set()))
            await came.wait()
            assert not running.done()
            await agent.box().interact("go", begun.session, b"\n", wait_s=0)
            output = await running
            assert output.stdout == b"first\nsecond\n"

    asyncio.run(main())


def test_a_background_process_does_not_hold_the_command(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            output = await box.run("op", shell("sleep 300 & echo started"))
            assert (output.state, output.stdout) == ("exited", b"started\n")
            left = await box.run("look", shell("pgrep -f '^sleep 300$' | wc -l"))
            assert int(left.stdout) >= 1
            await box.kill("op")
            assert await box.sessions() == 0

    asyncio.run(main())


def test_many_commands_at_once_up_to_the_limit(tmp_path: Path) -> None:
    async def main() -> None:
        async with running_agent(tmp_path) as agent:
            box = agent.box()
            outputs = await asyncio.gather(
                *(box.run(f"op-{n}", shell("sleep 60"), wait_s=0) for n in range(64))
            )
            assert len({output.session for output in outputs}) == 64
            with pytest.raises(LimitReached, match="64"):
                await box.run("one-more", shell("true"))
            await box.kill("op-3")
            assert (await box.run("one-more", shell("true"))).exit_code == 0
            await box.kill_all()
            assert await box.sessions() == 0
            assert (await box.run("op-5", shell("sleep 60"))).killed == "cancelled"

    asyncio.run(main())
