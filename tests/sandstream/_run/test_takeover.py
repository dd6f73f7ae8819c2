"""Scripts that share a key: one works, the others wait with it, and one of them takes over."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sandstream_bus.errors import BusUnavailable
from sandstream_bus.wire.messages import CallRequested, RunDone, RunMoved, RunReopened, TokenUsage
from sandstream_bus.wire.subjects import RunId
from support.nats_server import NatsServer, open_bus
from support.runs import new_run, started
from support.scripted_log import RUN, answer, begin, log, says

from sandstream import Agent, RunConfig, RunContextWrapper, Runner, function_tool
from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.run_view import RunView
from sandstream._hosting.user_code import UserCode
from sandstream._inspect.summaries import summarize
from sandstream._run import start as run_start
from sandstream._run.process import Process, _processes
from sandstream.testing import ScriptedModel, script_for, text, tool_call

SCRIPT = '''
import asyncio, os, sys
from sandstream import Agent, RunConfig, Runner, function_tool

DIRECTORY = sys.argv[1]

@function_tool
async def step(n: int) -> str:
    """One step of the work."""
    with open(f"{DIRECTORY}/ledger", "a") as ledger:
        ledger.write(f"{os.getpid()} {n}\\n")
    while n == 1 and not os.path.exists(f"{DIRECTORY}/go"):
        await asyncio.sleep(0.02)
    return "ok"

agent = Agent(name="worker", tools=[step], model="m")

async def main():
    keys = sys.argv[2:]
    configs = {key: RunConfig(run_key=key) if key[0] == "k" else None for key in keys}
    results = await asyncio.gather(*(
        Runner.run(agent, f"work on {key}.", run_config=config) for key, config in configs.items()
    ))
    print([result.final_output for result in results], flush=True)

asyncio.run(main())
'''


class Scripts:
    """Starts the script, reads what it did; ends all it started."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.directory = directory
        self._environment = environment
        self._file = directory / "script.py"
        self._file.write_text(SCRIPT)
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *keys: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(self._file), str(self.directory), *keys],
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def wait_for_lines(self, count: int) -> list[list[str]]:
        ledger = self.directory / "ledger"
        deadline = time.monotonic() + 30
        while True:
            lines = ledger.read_text().splitlines() if ledger.exists() else []
            if len(lines) >= count:
                return [line.split() for line in lines]
            assert time.monotonic() < deadline, lines
            time.sleep(0.02)

    def command(self, *arguments: str) -> Any:
        """What a command tells programs."""
        command = [sys.executable, "-m", "sandstream.cli", *arguments, "--json"]
        environment = self._environment
        done = subprocess.run(command, env=environment, capture_output=True, timeout=30, check=True)
        return json.loads(done.stdout)

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


def run_with(tmp_path: Path, play: Callable[[Scripts], None]) -> None:
    steps = [tool_call("step", {"n": 0}), tool_call("step", {"n": 1}), text("finished")]

    async def main() -> None:
        conversations = [script_for(f"work on {key}.", steps) for key in ("k1", "k2", "u1")]
        async with ScriptedModel(conversations=conversations, strict=False) as model:
            environment = {
                name: value for name, value in os.environ.items() if name not in ("NATS_URL",)
            }
            environment |= {
                "SANDSTREAM_HOME": str(tmp_path / "home"),
                "OPENAI_BASE_URL": model.base_url,
            }
            scripts = Scripts(tmp_path, environment)
            try:
                await asyncio.to_thread(play, scripts)
            finally:
                scripts.end()

    asyncio.run(main())


def test_a_second_script_waits_with_the_first_and_disturbs_nothing(tmp_path: Path) -> None:
    def play(scripts: Scripts) -> None:
        first = scripts.start("k1", "u1")
        scripts.wait_for_lines(4)
        second = scripts.start("k1")
        time.sleep(1.5)  # long enough for a wrong takeover to show in the ledger
        (scripts.directory / "go").touch()
        assert first.communicate(timeout=30)[0] == "['finished', 'finished']\n"
        assert second.communicate(timeout=30)[0] == "['finished']\n"
        lines = scripts.wait_for_lines(4)
        assert len(lines) == 4 and {pid for pid, _ in lines} == {str(first.pid)}

    run_with(tmp_path, play)


def test_a_waiting_script_takes_over_when_the_first_dies(tmp_path: Path) -> None:
    def play(scripts: Scripts) -> None:
        first = scripts.start("k1")
        scripts.wait_for_lines(2)
        second = scripts.start("k1")
        time.sleep(1.5)  # it is waiting now, or it will find the first one dead: both are tested
        first.kill()
        scripts.wait_for_lines(3)
        (scripts.directory / "go").touch()
        assert second.communicate(timeout=30)[0] == "['finished']\n"
        lines = scripts.wait_for_lines(3)
        assert lines == [
            [str(first.pid), "0"],
            [str(first.pid), "1"],
            [str(second.pid), "1"],
        ]
        told = scripts.command("show", "k1")
        assert (told["takeovers"], told["retries"]) == (1, 0)
        steps = [row for row in told["spans"] if row["label"] == "step"]
        assert [row.get("attempts", 1) for row in steps] == [1, 2]
        pids = [int(row["worker"].split(":")[-2]) for row in steps]
        assert pids == [first.pid, second.pid]
        assert [part["kind"] for part in steps[1]["parts"]].count("lost") == 1
        total = scripts.command("stats")["total"]
        assert (total["takeovers"], total["retries"]) == (1, 0)

    run_with(tmp_path, play)


def test_two_scripts_continue_two_runs_of_one_dead_script(tmp_path: Path) -> None:
    def play(scripts: Scripts) -> None:
        first = scripts.start("k1", "k2")
        scripts.wait_for_lines(4)
        first.kill()
        (scripts.directory / "go").touch()
        others = [scripts.start("k1"), scripts.start("k2")]
        for other in others:
            assert other.communicate(timeout=30)[0] == "['finished']\n"
        assert len(scripts.wait_for_lines(6)) == 6

    run_with(tmp_path, play)


def test_a_finished_run_is_returned_at_once(tmp_path: Path) -> None:
    def play(scripts: Scripts) -> None:
        (scripts.directory / "go").touch()
        assert scripts.start("k1").communicate(timeout=30)[0] == "['finished']\n"
        assert scripts.start("k1").communicate(timeout=30)[0] == "['finished']\n"
        assert len(scripts.wait_for_lines(2)) == 2

    run_with(tmp_path, play)


# --- within one process ---------------------------------------------------------------------------


def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Callable[[], Any]) -> None:
    """Run a program in this process against a model that calls ``slow`` and then ends."""
    monkeypatch.setenv("SANDSTREAM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NATS_URL", raising=False)

    async def main() -> None:
        async with ScriptedModel([tool_call("slow", {}), text("finished")]) as model:
            monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
            async with asyncio.timeout(30):
                await program()

    asyncio.run(main())
    assert not [loop for loop in _processes if loop.is_closed()]


class SlowAgent:
    """An agent whose tool waits until it may go on."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go = asyncio.Event()

        @function_tool
        async def slow() -> str:
            """Wait."""
            self.entered.set()
            await self.go.wait()
            return "ok"

        self.agent: Agent[Any] = Agent(name="slow", tools=[slow], model="m")

    def run(self) -> asyncio.Task[Any]:
        config = RunConfig(run_key="k")
        return asyncio.ensure_future(Runner.run(self.agent, "work", run_config=config))


@pytest.mark.needs_process
def test_a_caller_that_leaves_takes_nothing_from_another_of_the_same_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def program() -> None:
        process = await Process.of_this_loop()
        slow = SlowAgent()
        callers = [slow.run(), slow.run()]
        await slow.entered.wait()
        callers[1].cancel()
        await asyncio.wait({callers[1]})
        assert await process._find_run(RunId("k"), None) is not None  # type: ignore[arg-type]
        slow.go.set()
        assert (await callers[0]).final_output == "finished"

    play(tmp_path, monkeypatch, program)


@pytest.mark.needs_process
def test_a_run_that_was_taken_away_by_one_that_died_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_start, "LOOK_EVERY_S", 0.5)

    async def program() -> None:
        bus = (await Process.of_this_loop()).bus
        slow = SlowAgent()
        caller = slow.run()
        await slow.entered.wait()
        run = RunId("k")
        await bus.log.append(
            run,
            bus.subjects.turn(run, "gone"),
            RunMoved(pool="gone", host="gone"),
            after=await bus.log.last_sequence(run),
            msg_id="move",
        )
        slow.go.set()
        assert (await caller).final_output == "finished"

    play(tmp_path, monkeypatch, program)


def test_a_reopened_run_is_not_over_for_a_caller_that_comes_then(nats_server: NatsServer) -> None:
    async def main() -> None:
        async with open_bus(nats_server) as bus:
            run, s = new_run(), bus.subjects
            end = RunDone(status="failed", agent="a", turns=0, usage=TokenUsage())
            await bus.log.send(s.start(run, "p"), started(), msg_id="1")
            await bus.log.send(s.done(run), end, msg_id="2")
            await bus.log.send(s.turn(run, "p"), RunReopened(reason="again"), msg_id="3")

            async def known() -> Any:
                return await bus.log.read(run)

            waiting = asyncio.ensure_future(bus.follow.done(run, begin=known))
            await asyncio.wait({waiting}, timeout=0.3)
            assert not waiting.done()
            real = RunDone(status="completed", agent="a", turns=1, usage=TokenUsage())
            await bus.log.send(s.done(run), real, msg_id="4")
            async with asyncio.timeout(5):
                assert (await waiting).status == "completed"

    asyncio.run(main())


def test_the_summary_of_an_ended_run_names_the_pool_that_it_moved_to() -> None:
    """Where a re-driven message reopens the run."""
    end = RunDone(status="failed", agent="a", turns=0, usage=TokenUsage())
    assert summarize(RUN, log(begin(), RunMoved(pool="p2", host="h2"), end)).pool == "p2"


def test_a_log_that_cannot_be_read_now_is_no_outcome_of_a_call() -> None:
    class Unreadable:
        async def load(self, run: RunId) -> None:
            raise BusUnavailable("the log cannot be read")

    async def find(run: RunId, states: Any) -> HostedRun:
        return HostedRun({}, RunContextWrapper(context=None), RunConfig())

    call = CallRequested(call="t1-prepare", kind="prepare", turn=1, agent="a", reply_pool="p")
    states: Any = Unreadable()
    with pytest.raises(BusUnavailable):
        asyncio.run(UserCode(find, None).invoke(RUN, call, states))  # type: ignore[arg-type]


def test_the_caller_sees_the_answers_that_count() -> None:
    """A process that lost its run may still answer; the harness and the result agree on it."""
    hosted = HostedRun({"a": Agent(name="a")}, RunContextWrapper(None), RunConfig())
    view = RunView(hosted)
    view.feed(begin())
    view.feed(RunMoved(pool="p2", host="h2"), "s.run.r.turn.p2")
    view.feed(answer(1, says("of the old one")), "s.run.r.result.main")
    view.feed(answer(1, says("of the new one")), "s.run.r.result.p2")
    assert view.last_text == "of the new one"
