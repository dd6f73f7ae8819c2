"""What Sandstream does, in 20 seconds and without a key: `make demo`.

Starts a private NATS server, two harness processes and a worker, gives them work, shows every
message on the bus, and kills processes while they work.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from demo_screen import Screen

from sandstream import Client
from sandstream.events import CallFinished
from sandstream.testing import ScriptedModel, script_for, text, tool_call, tool_calls

HERE = Path(__file__).resolve().parent
THINKING_S = 1.2
SURVEY = """\
echo begun | tee -a work.log; sleep 3
awk -F, '{up += $2} END {print up " m up"}' track.csv
echo "times begun: $(grep -c begun work.log)"
"""
SCRIPTS = [
    script_for(
        "Walk",
        [
            tool_calls(
                ("trail", {"start": "Alta", "end": "Bergset"}), ("weather", {"place": "Bergset"})
            ).after(0.4),
            text("Go: 14 km, about 5 hours, clear and cold. Take gloves and start by nine.")
            .chunks(20, delta_delay_s=0.04)
            .after(0.3),
        ],
    ),
    script_for(
        "Book",
        [
            tool_call("book_hut", {"place": "Bergset"}).after(0.3),
            text("The hut at Bergset is booked for 40 EUR.").after(THINKING_S),
        ],
    ),
    script_for(
        "climb",
        [tool_call("exec_command", {"cmd": SURVEY}), text("It is 640 m up from Alta to Bergset.")],
    ),
]


class Cast:
    """The processes of the demo."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str, *arguments: str) -> None:
        command = [*_with_us(), sys.executable, "-m", "sandstream.cli", *arguments, "--json"]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self._processes[name] = process
        assert process.stdout is not None
        if not await process.stdout.readline():
            _, said = await process.communicate()
            del self._processes[name]
            raise RuntimeError(f"{name} did not start:\n{said.decode()}")
        shown = " ".join(["sandstream", *arguments]).replace(str(HERE), "examples")
        self._screen.good(f"{name:14} pid {process.pid:<8} {shown}")

    async def kill(self, name: str) -> int:
        """kill -9"""
        process = self._processes.pop(name)
        process.kill()
        await process.communicate()
        return process.pid

    async def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            await process.communicate()


def _with_us() -> list[str]:
    """On Linux, end the processes of the demo if the demo itself is killed."""
    return ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []


@asynccontextmanager
async def shown(client: Client, screen: Screen) -> AsyncIterator[None]:
    """Show every task, every event of the log and every delta, as any user of the bus sees them.

    The server sends a copy of each stored event below `sandstream.live`. A message that was sent
    twice is stored once.
    """

    def show(message: Any) -> None:
        stored = (message.headers or {}).get("Nats-Subject")
        if stored or not message.subject.endswith(".output"):
            screen.message(stored or message.subject, message.data)

    subscriptions = [
        await client.bus.connection.subscribe(subject, show)
        for subject in ("sandstream.task.*", "sandstream.live.>")
    ]
    yield
    for subscription in subscriptions:
        await subscription.close()


async def main() -> None:
    began = time.monotonic()
    screen = Screen()
    with (
        tempfile.TemporaryDirectory(prefix="sandstream-demo-") as home,
        ScriptedModel(conversations=SCRIPTS, strict=False) as model,
    ):
        ledger = Path(home) / "ledger.txt"
        _use(home, ledger, model.base_url)
        cast = Cast(screen)
        screen.scene(
            "Sandstream: agents as actors on NATS JetStream",
            "No framework object holds a run together. A run is a list of events in one durable "
            "log; processes read the log, decide, and write to it. Here they are:",
        )
        async with await Client.connect() as client:
            assert client._opened.server is not None
            screen.good(f"{'nats-server':14} {client._opened.server.url}, private, with JetStream")
            try:
                await asyncio.gather(
                    cast.start("harness one", "actor", "harness"),
                    cast.start("harness two", "actor", "harness"),
                    cast.start("worker", "worker", str(HERE / "demo_app.py")),
                )
                has_sandboxes = await start_sandboxes(screen, cast)
                async with shown(client, screen):
                    await walk(client, screen)
                    await crash(client, screen, cast, model, ledger, has_sandboxes)
            finally:
                await cast.stop()
            await summary(client, screen, model, ledger, time.monotonic() - began)


def _use(home: str, ledger: Path, model_url: str) -> None:
    """The environment of the demo and of its processes, without the user's own variables."""
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "NATS_", "SANDSTREAM_")):
            del os.environ[name]
    os.environ |= {
        "SANDSTREAM_HOME": f"{home}/state",
        "OPENAI_BASE_URL": model_url,
        "DEMO_LEDGER": str(ledger),
        "SANDSTREAM_SANDBOX_GRACE_S": "10",  # how long a box lives without its actor
    }


async def walk(client: Client, screen: Screen) -> None:
    screen.scene(
        "1. A task, and what goes over the bus",
        "Every line is one message. The harness calls the model, the worker runs the tools; they "
        "know of each other only what is written here.",
    )
    screen.columns()
    run = await client.submit(
        "guide", "Walk from Alta to Bergset tomorrow?", key="walk", stream=True
    )
    await client.wait(run)
    await asyncio.sleep(0.1)  # let the last line be shown


async def start_sandboxes(screen: Screen, cast: Cast) -> bool:
    """Whether this machine can run sandboxes. The demo also works without them."""
    try:
        await cast.start("sandbox actor", "actor", "sandbox")
    except RuntimeError as error:
        screen.say(f"No sandboxes in this demo: {error}")
        return False
    return True


async def crash(
    client: Client,
    screen: Screen,
    cast: Cast,
    model: ScriptedModel,
    ledger: Path,
    has_sandboxes: bool,
) -> None:
    screen.scene(
        "2. kill -9, in the middle of everything",
        "One run has booked a hut, and the model thinks about its last words. Another has a "
        "command at work in a sandbox, a box without network and without a view of this machine. "
        "Then the processes that work on them are killed."
        if has_sandboxes
        else "A run has booked a hut, and the model thinks about its last words. Then the "
        "processes that work on it are killed.",
    )
    screen.columns()
    runs = [await survey(client)] if has_sandboxes else []
    asked = len(model.journal)
    runs.append(await client.submit("guide", "Book the hut at Bergset.", key="book"))
    await model.wait_for_requests(asked + 2)
    pids = [await cast.kill("harness one"), await cast.kill("harness two")]
    screen.alarm(f"kill -9 {pids[0]} {pids[1]}: both harness processes are gone")
    if has_sandboxes:
        pid = await cast.kill("sandbox actor")
        screen.alarm(f"kill -9 {pid}: so is the sandbox actor; the command runs on in its box")
    died = time.monotonic()
    count = len(await client.events(runs[-1]))
    screen.say(
        f"No process works on the booking now. It is {count} events in the log. New processes, "
        "here or on other machines, take over when the leases of the dead (5 s) are over:"
    )
    heirs = [cast.start("harness three", "actor", "harness")]
    if has_sandboxes:
        heirs.append(cast.start("another actor", "actor", "sandbox"))
    waiting = asyncio.ensure_future(asyncio.gather(*heirs, *(client.wait(run) for run in runs)))
    while not waiting.done() and len(model.journal) < asked + 3:
        left = max(0.0, 5.0 - (time.monotonic() - died))
        note = f"the leases are over in {left:.1f} s" if left else "the new ones take over"
        screen.passing(note)
        await asyncio.sleep(0.1)
    screen.passing("")
    await waiting
    await asyncio.sleep(0.1)  # let the last line be shown
    booked = bookings(ledger)
    times = "once" if booked == 1 else f"{booked} times"
    screen.good(f"the run is complete, and the hut was booked {times}")
    if has_sandboxes:
        screen.good(f"the command has its one result: {await said_by_command(client, runs[0])}")


async def survey(client: Client) -> str:
    """Start a run and wait until its command has begun."""
    begun = asyncio.Event()
    listening = await client.bus.connection.subscribe(
        "sandstream.live.climb.output", lambda _: begun.set()
    )
    run = await client.submit("surveyor", "How much climb is it?", key="climb")
    await begun.wait()
    await listening.close()
    return run


async def said_by_command(client: Client, run: str) -> str:
    """The last line of the command's output, from the log."""
    results = [
        json.loads(bytes(event.event.output))
        for event in await client.events(run)
        if isinstance(event.event, CallFinished) and event.event.kind == "tool"
    ]
    return str(results[-1]).strip().splitlines()[-1]


def bookings(ledger: Path) -> int:
    """The number of real bookings, as the tool recorded them."""
    return ledger.read_text().count("booked Bergset")


async def summary(
    client: Client, screen: Screen, model: ScriptedModel, ledger: Path, took_s: float
) -> None:
    runs = await client.list()
    answers = sum(run.turns for run in runs)
    screen.scene(f"That was it, in {took_s:.0f} seconds")
    screen.say(
        f"{len(runs)} runs, {answers} model answers in the log, {len(model.journal)} model calls: "
        "the one that died with its process was asked again. Tools and commands ran once each. "
        "Waiting runs are events in a log: they cost no memory. To go faster, start more "
        "processes."
    )
    screen.say("")
    for command, meaning in (
        ("source .venv/bin/activate", "first, for all of these"),
        ("python examples/01_hello_tools.py", "the names of the Agents SDK, durable"),
        (
            "python examples/03_survive_a_crash.py",
            "a program that dies and goes on; start it twice",
        ),
        ("python examples/08_data_analyst.py", "an agent with a sandbox, and its report"),
        ("sandstream up examples/06_worker_app.py", "serve agents to any NATS client"),
        ("sandstream --help", "run, submit, watch, runs, show, cancel, doctor"),
        ("examples/README.md, README.md", "where to go from here"),
    ):
        screen.item(command, meaning)
    if bookings(ledger) != 1 or any(run.status != "completed" for run in runs):
        raise SystemExit("this is not what the demo promises; please report it")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
