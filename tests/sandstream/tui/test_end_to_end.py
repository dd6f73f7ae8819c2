"""The whole UI in a real terminal, with actors that are processes of their own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.nats_server import NatsServer
from support.processes.lifeline import ends_with_us
from support.tui.stage import obedient
from support.tui.terminal import terminal
from support.waiting import until

from sandstream import Client
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel

pytestmark = pytest.mark.timeout(240)
HOSTILE_TITLE = "\x1b]0;OWNED\x07"
APP = """
import asyncio
from pathlib import Path

from sandstream import Agent, function_tool
from sandstream.sandbox import SandboxAgent

@function_tool(needs_approval=True)
def refund(amount: int) -> str:
    "Give money back."
    return f"refunded {amount}"

@function_tool
async def look() -> str:
    "Look around; the first time it never ends."
    looks = Path(__file__).with_name("looks")
    with looks.open("a") as file:
        file.write("x")
    if looks.stat().st_size == 1:
        await asyncio.sleep(600)
    return f"looked {looks.stat().st_size} times"

coder = SandboxAgent(name="coder", model="gpt-test", tools=[refund, look])
"""


class Processes:
    """Actors as processes. Their starter stops them."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env
        self._known: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, *arguments: str) -> int:
        process = subprocess.Popen(
            [*ends_with_us(), sys.executable, "-m", "sandstream.cli", *arguments, "--json"],
            env=self.env,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._known[name] = process
        assert process.stdout is not None
        assert process.stdout.readline(), f"{name} did not start"
        return process.pid

    def kill(self, name: str) -> None:
        process = self._known.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        assert process.stdout is not None
        process.stdout.close()

    def stop(self) -> None:
        for process in self._known.values():
            process.terminate()
        for process in self._known.values():
            process.communicate(timeout=30)


@contextmanager
def installation(server: NatsServer, home: Path) -> Iterator[Processes]:
    """One harness, and everything else that sessions need."""
    server.set_up()
    app = home / "app.py"
    app.write_text(APP)
    with ScriptedModel(obedient(), strict=False) as model, ExitStack() as stack:
        env = {
            **{key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ},
            "NATS_URL": server.url,
            "SANDSTREAM_HOME": str(home / "state"),
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": "none",
            "SANDSTREAM_SANDBOX_GRACE_S": "20",
        }
        found = Processes(env)
        stack.callback(found.stop)
        found.start("harness one", "actor", "harness")
        found.start("sessions", "actor", "sessions")
        found.start("sandboxes", "actor", "sandbox")
        found.start("worker", "worker", str(app))
        yield found


async def create(env: dict[str, str], id: str, title: str, said: str = "") -> None:
    async with await Client.connect(Settings.from_env(env)) as client:
        await client.sessions.create("coder", id=id, title=title, input=said)


def test_a_working_day(nats_server: NatsServer, tmp_path: Path) -> None:
    """Type, answer an approval, interrupt, fork, detach, kill -9 most actors, reattach."""
    with (
        installation(nats_server, tmp_path) as actors,
        terminal(tmp_path, {**actors.env, "VISUAL": "/no/editor"}) as window,
    ):
        window.run("tui")
        window.shows("no sessions and no runs yet")
        window.press("n")
        window.shows("New session", "First message")
        window.type("please do:write")
        window.shows("did write", "turn 1 completed")
        window.press("C-g")
        window.shows("/no/editor did not start", "turn 1 completed")

        window.type("do:refund")
        window.shows(
            "coder asks to run", "refund(amount=12)", "a allow", "a Allow"
        )  # it has the focus
        (tmp_path / "other").mkdir()
        with terminal(tmp_path / "other", actors.env) as other:
            other.run("tui")
            other.shows("1 need you", "refund(amount=12)")
            other.press("Enter")
            other.shows("did write", "coder asks to run")
            window.press("a")
            window.shows("refund approved by", "did refund", "turn 2 completed")
            other.shows(
                "refund approved by", "did refund", "turn 2 completed", without="asks to run"
            )
            other.press("C-q")
            other.shows("left with 0")

        window.type("do:hang")
        window.shows("● $ touch hanging")
        window.press("Escape")
        window.shows("ended as cancelled", "turn 3 cancelled", "⊘ $ touch hanging")

        window.press("Escape")
        window.press("Escape")
        window.shows("Go back to, or fork after", "do:refund")
        window.press("Up", "f")
        window.shows("fork of", "turn 2", "this is the fork")
        window.type("!cat note.txt")
        window.shows("│ two")
        window.type("/destroy")
        window.shows("Keep it")
        window.press("Down", "Enter")
        window.shows("Sandstream", without="(fork)")
        window.press("Enter")
        window.shows("turn 3 cancelled")

        window.type("do:once")
        window.shows("❯ do:once", "● working")
        window.press("C-q")
        window.shows("left with 0")
        window.run("tui")
        window.shows("Working")
        window.press("Enter")
        window.shows("❯ do:once", "● working")
        actors.kill("harness one")
        pid = actors.start("harness two", "actor", "harness")
        window.shows(f":{pid} took over from", "asked again", "turn 4 completed")

        window.type("do:both")
        window.shows("● $ echo x >> ran", "● look()")
        actors.kill("sandboxes")
        actors.kill("worker")
        boxes = actors.start("sandboxes two", "actor", "sandbox")
        tools = actors.start("worker two", "worker", str(tmp_path / "app.py"))
        window.type("!touch go")
        window.shows("turn 5 completed", f":{boxes} took over $ echo x >> ran", "→ ran 1 times")
        window.shows(f":{tools} took over look() from", "→ looked 2 times", "did both")
        window.type("/destroy")
        window.shows("Keep it")
        window.press("Down", "Enter")
        window.shows("no sessions and no runs yet")
        window.press("q")
        window.shows("left with 0")


def test_an_editor_and_a_terminal_in_the_sandbox(nats_server: NatsServer, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho "written in an editor" >> "$1"\n')
    editor.chmod(0o755)
    with (
        installation(nats_server, tmp_path) as actors,
        terminal(tmp_path, {**actors.env, "VISUAL": str(editor)}) as window,
    ):
        window.run("tui")
        window.shows("no sessions and no runs yet")
        window.press("n")
        window.shows("First message")
        window.type("do:write")
        window.shows("turn 1 completed")
        window.press("C-g")
        window.shows("│ written in an editor")
        window.press("C-u")
        window.type("do:slow")  # what the model writes is not drawn meanwhile
        window.shows("slow answer")
        window.press("C-t")
        window.shows("A terminal in", "bash-")
        window.type("sleep 2; echo $((40+2)) in $PWD; stty size; cat note.txt")
        window.shows("42 in /workspace", "34 110", "two")
        window.resize(90, 30)
        window.type("until [ \"$(stty size)\" = '30 90' ]; do sleep 0.1; done; echo re'sized'")
        window.shows("resized")
        window.type("exit")
        window.shows("the shell ended with 0", "turn 2 completed")
        window.press("C-t")
        window.shows("A terminal in", "bash-")
        window.press("C-]")
        window.shows("left the terminal", "turn 2 completed")
        window.type("/destroy")
        window.shows("Keep it")
        window.press("Down", "Enter")
        window.shows("no sessions and no runs yet")
        window.press("q")
        window.shows("left with 0")


def test_the_demo_shows_everything_and_leaves_nothing(tmp_path: Path) -> None:
    """Needs no server, no model and no key of ours."""
    temporary, closed = tmp_path / "tmp", tmp_path / "closed"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(temporary)}
    (closed / "tmp").mkdir(parents=True)
    temporary.mkdir()
    with terminal(tmp_path, env, columns=120) as window:
        with terminal(closed, {**env, "TMPDIR": str(closed / "tmp")}) as other:
            other.run("tui", "--demo")
            window.run("tui", "--demo")
            other.shows("Publish the site")
            assert list((closed / "tmp").iterdir())
        # the terminal of that one is closed
        window.shows("Publish the site", "Fix the shop", "Nightly build", "What is left")
        window.shows("Needs you", "└ ", "another way", "sleeping")
        window.press("F2")
        window.shows("Questions to you", "deploy(target=", "a allow")
        window.press("a")
        window.shows("nothing waits for you")
        window.press("Escape")
        window.shows("in all", without="Questions to you")
        window.press("q")
        window.shows("left with 0")
    assert list(temporary.iterdir()) == []
    asyncio.run(
        until(lambda: not list((closed / "tmp").iterdir()), within_s=30, what="nothing is left")
    )


def test_hostile_text_never_reaches_the_terminal(nats_server: NatsServer, tmp_path: Path) -> None:
    """Everything that the UI writes is recorded: a title, a colour or a bell of the text would be
    in it.
    """
    with installation(nats_server, tmp_path) as actors, terminal(tmp_path, actors.env) as window:
        raw = tmp_path / "raw"
        window.tmux("pipe-pane", f"cat > {raw}")
        asyncio.run(create(actors.env, "hostile", f"bad{HOSTILE_TITLE}name"))
        window.run("tui", "hostile")
        window.shows("no box")
        window.type("do:evil")
        window.shows("before", "\\u202ereversed", "&#27;[31m", "[bold]x[/]", "turn 1 completed")
        window.type("do:hostile")
        window.shows("did hostile", "turn 2 completed")
        window.press("C-o")
        window.shows("│ 0;OWNEDred")
        window.press("Left")
        window.shows("0;OWNEDname", "in all")
        asyncio.run(create(actors.env, "asks", f"asks{HOSTILE_TITLE}", "do:refund"))
        window.shows("1 need you")
        notice = re.compile(rb"\x1b\]9;asks[^\x1b\x07]* needs you\x07\x07")
        is_told = until(
            lambda: notice.search(raw.read_bytes()), within_s=30, what="the terminal has the notice"
        )
        asyncio.run(is_told)
        window.press("q")
        window.shows("left with 0")
        written = raw.read_bytes()
        assert b"\x1b]0;OWNED" not in written
        assert b"\x1b[31mred" not in written
        assert b"\xe2\x80\xae" not in written  # U+202E, which turns the direction of reading
