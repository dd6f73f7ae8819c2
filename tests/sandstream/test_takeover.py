"""Scripts that share a key: one works, the others wait with it, and one of them takes over."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

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
