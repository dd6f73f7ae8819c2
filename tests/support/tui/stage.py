"""A whole installation in one process for the terminal UI, and a pilot that presses keys.

The model does what the last message says: ``do:`` names a word of ``COMMANDS``.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelClient, Route
from sandstream_actors.sandbox.actor import SandboxActor
from sandstream_actors.sessions.actor import SessionsActor
from sandstream_bus.bus import Bus
from sandstream_providers.local.provider import LocalProvider
from support.nats_server import NatsServer
from support.waiting import until
from textual.pilot import Pilot

from sandstream import Agent, Client, RunConfig, function_tool
from sandstream.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.entries import File
from sandstream.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
from sandstream.settings import Settings
from sandstream.testing import ScriptedModel, text, tool_call, tool_calls
from sandstream.testing.journal import Request
from sandstream.testing.request_reader import conversation_items
from sandstream.testing.steps import Step
from sandstream.tui.app import SandstreamApp
from sandstream.tui.settings import TuiSettings
from sandstream.worker import AgentWorker

COMMANDS = {
    "list": "ls",
    "write": "printf 'one\\ntwo\\n' > note.txt; echo written",
    "more": "echo three >> note.txt; echo appended",
    "noisy": "for n in 1 2 3; do echo line $n; done; until [ -e go ]; do sleep 0.05; done",
    "hang": "touch hanging; sleep 600",
    "hostile": "printf '\\033]0;OWNED\\007\\033[31mred\\033[2J\\n'",
}
COUNTED = "echo x >> ran; until [ -e go ]; do sleep 0.05; done; echo ran $(wc -l < ran) times"
HOSTILE = (
    "before \x1b]0;OWNED\x07\x1b[31mred\x1b[2J \u202ereversed \x9b31m after &#27;[31m [bold]x[/]"
)


@function_tool(needs_approval=True)
def refund(amount: int) -> str:
    """Give money back."""
    return f"refunded {amount}"


def obedient() -> list[Step]:
    """What the model does for each word of the last message."""
    steps: list[Step] = []
    for word, command in COMMANDS.items():
        call = tool_call("exec_command", {"cmd": command, "yield_time_ms": 30_000})
        steps += [call.when(_asks(word)).forever(), text(f"did {word}").when(_did(word)).forever()]
    counted = {"cmd": COUNTED, "yield_time_ms": 30_000}
    steps += [
        tool_calls(("exec_command", counted), ("look", {})).when(_asks("both")).forever(),
        text("did both").when(_did("both")).forever(),
        tool_call("refund", {"amount": 12}).when(_asks("refund")).forever(),
        text("did refund").when(_did("refund")).forever(),
        text(HOSTILE).when(_asks("evil")).forever(),
        text("slow answer " * 40).chunks(40, delta_delay_s=0.05).when(_asks("slow")).forever(),
        text("late").after(600).when(_asks("never")).forever(),
        text("lost").after(600).when(_First(_asks("once"))).forever(),
        text("asked again").when(_asks("once")).forever(),
        text("# Title\n\nSome *text* with `code`.\n\n- one\n- two").when(_asks("mark")).forever(),
    ]
    return [*steps, text("Hello.").forever()]


def _asks(word: str) -> Any:
    def holds(request: Request) -> bool:
        items = conversation_items(request.body)
        return items[-1].get("role") == "user" and f"do:{word}" in str(items[-1].get("content"))

    return holds


def _did(word: str) -> Any:
    def holds(request: Request) -> bool:
        items = conversation_items(request.body)
        users = [str(it.get("content")) for it in items if it.get("role") == "user"]
        return items[-1].get("role") != "user" and bool(users) and f"do:{word}" in users[-1]

    return holds


class _First:
    """Only the first request that fits: its answer is lost with the process that waits for it."""

    def __init__(self, holds: Any) -> None:
        self._holds = holds
        self._is_over = False

    def __call__(self, request: Request) -> bool:
        if self._is_over or not self._holds(request):
            return False
        self._is_over = True
        return True


def agents() -> dict[str, Agent[Any]]:
    start = Manifest(entries={"given.txt": File(content=b"given\n")})
    coder = SandboxAgent(name="coder", model="gpt-test", default_manifest=start, tools=[refund])
    talker = Agent(name="talker", model="gpt-test", tools=[refund])
    return {"coder": coder, "talker": talker}


class Stage:
    """One installation."""

    def __init__(self, server: NatsServer, home: Path, stack: contextlib.AsyncExitStack) -> None:
        self.server = server
        self.home = home
        self._stack = stack

    async def set_up(self) -> None:
        settings = Settings.from_env(
            {"NATS_URL": self.server.url, "SANDSTREAM_HOME": str(self.home)}
        )
        self.bus = await Bus.open(self.server.options(), create="missing")
        self._stack.push_async_callback(self.bus.close)
        self.client = await self._stack.enter_async_context(await Client.connect(settings))
        self.model = await self._stack.enter_async_context(ScriptedModel(obedient(), strict=False))
        models = ModelClient([Route(prefix="openai", base_url=self.model.base_url)], environ={})
        self._stack.push_async_callback(models.aclose)
        config = RunConfig(sandbox=SandboxRunConfig(UnixLocalSandboxClient()))
        for actor in (
            Harness(self.bus, models),
            AgentWorker(self.bus, agents(), pool="app", config=config),
            SessionsActor(self.bus),
        ):
            await actor.start()
            self._stack.push_async_callback(actor.stop)
        boxes = SandboxActor(
            self.bus, LocalProvider(self.home), node="here", reap_every_s=3600, watch_every_s=3600
        )
        await boxes.start()
        self._stack.push_async_callback(boxes.stop, 0.0)


@contextlib.asynccontextmanager
async def stage(server: NatsServer, home: Path) -> AsyncIterator[Stage]:
    """Nothing of it is left afterwards."""
    try:
        async with contextlib.AsyncExitStack() as stack:
            place = Stage(server, home, stack)
            await place.set_up()
            yield place
    finally:
        provider = LocalProvider(home)
        for folder in sorted((home / "sandboxes").glob("[!.]*")):
            await provider.delete(folder.name)
        await provider.close()


class Screen:
    """The UI as a person sees it."""

    def __init__(self, app: SandstreamApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    def text(self) -> str:
        """What is on the screen, as lines."""
        return screen_text(self.app)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, words: str) -> None:
        """Type a text, and Enter."""
        await self.pilot.press(*(_KEYS.get(it, it) for it in words), "enter")

    async def shows(self, *parts: str) -> str:
        """Wait until the screen shows all of these."""

        def holds() -> bool:
            shown = self.text()
            return all(it in shown for it in parts)

        try:
            await until(holds, within_s=30, what=f"the screen shows {parts}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}") from None
        return self.text()

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            await until(holds, within_s=30, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text()}") from None


_KEYS = {
    " ": "space",
    "/": "slash",
    ":": "colon",
    "!": "exclamation_mark",
    "@": "at",
    "-": "minus",
    ".": "full_stop",
    "_": "underscore",
    "?": "question_mark",
    ",": "comma",
}


def screen_text(app: SandstreamApp) -> str:
    """The characters on the screen, without colours."""
    width, height = app.size
    lines = app.screen._compositor.render_strips()
    return "\n".join("".join(it.text for it in line).rstrip()[:width] for line in lines[:height])


@contextlib.asynccontextmanager
async def screen(
    client: Client,
    *,
    size: tuple[int, int] = (110, 34),
    open_id: str = "",
    notifications: bool = True,
) -> AsyncIterator[Screen]:
    """The UI in a terminal of that size; ``notifications``: whether it shows them."""
    app = SandstreamApp(client, TuiSettings(), open_id=open_id)
    async with app.run_test(size=size, notifications=notifications) as pilot:
        yield Screen(app, pilot)
