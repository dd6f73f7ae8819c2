"""A whole installation in one process, with a model that does what messages name."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from sandstream_actors.harness.actor import Harness
from sandstream_actors.model import ModelClient, Route
from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_actors.sandbox.actor import SandboxActor
from sandstream_actors.sessions.actor import SessionsActor
from sandstream_bus.bus import Bus
from sandstream_bus.wire.sessions import CreateSession, SendMessage, SessionRequest, SessionState
from sandstream_bus.wire.subjects import session_conversation, session_sandbox
from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.interface import Provider
from sandstream_providers.local.host import LocalHost
from sandstream_providers.local.provider import LocalProvider
from sandstream_workspaces.store import WorkspaceStore
from support.nats_server import NatsServer
from support.waiting import eventually

from sandstream import Agent, RunConfig, function_tool
from sandstream.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from sandstream.sandbox.entries import File
from sandstream.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
from sandstream.testing import ScriptedModel, text, tool_call
from sandstream.testing.journal import Request
from sandstream.testing.request_reader import conversation_items
from sandstream.testing.steps import Step
from sandstream.worker import AgentWorker

SMITH = "smith"
TALKER = "talker"
TILL = "till"
ELSEWHERE = "elsewhere"
COMMANDS = {
    "count": "echo x >> counter; wc -l < counter",
    "write": "echo written > written.txt",
    "shape": "mkdir -p deep/er; echo a > deep/er/a; chmod 750 deep/er/a; ln -s er/a deep/link",
    "hang": "touch hanging; sleep 600",
}
"""What a message that contains the word makes the model do."""


@function_tool(needs_approval=True)
def refund(amount: int) -> str:
    """Give money back."""
    return f"refunded {amount}"


def obedient(commands: Mapping[str, str] = COMMANDS) -> list[Step]:
    """For each word: the command, then an answer that names the word."""
    steps = []
    for word, command in commands.items():
        call = tool_call("exec_command", {"cmd": command, "yield_time_ms": 30_000})
        steps += [
            call.when(_asks(word)).forever(),
            text(f"did {word}").when(_did(word)).forever(),
        ]
    refunds = tool_call("refund", {"amount": 12})
    steps += [
        refunds.when(_asks("refund")).forever(),
        text("did refund").when(_did("refund")).forever(),
    ]
    return [*steps, text("Hello.").forever()]


def _asks(word: str) -> Any:
    def holds(request: Request) -> bool:
        items = conversation_items(request.body)
        return items[-1].get("role") == "user" and word in _last_user(items)

    return holds


def _did(word: str) -> Any:
    def holds(request: Request) -> bool:
        items = conversation_items(request.body)
        return items[-1].get("role") != "user" and word in _last_user(items)

    return holds


def _last_user(items: list[Any]) -> str:
    return next((str(it.get("content")) for it in reversed(items) if it.get("role") == "user"), "")


class Elsewhere(LocalHost):
    """A second provider on this machine."""

    name = ELSEWHERE


class Desk:
    """One installation, and what people do with its sessions."""

    sandboxes: SandboxActor
    model: ScriptedModel

    def __init__(self, server: NatsServer, home: Path, stack: contextlib.AsyncExitStack) -> None:
        self.server = server
        self.home = home
        self._stack = stack
        self.actors: list[SessionsActor] = []

    async def bus_of(self) -> Bus:
        bus = await Bus.open(self.server.options(), create="missing")
        self._stack.push_async_callback(bus.close)
        return bus

    async def set_up(self, steps: list[Step] | None, agents: Mapping[str, Any]) -> None:
        self.bus = await self.bus_of()
        self.store = WorkspaceStore(self.bus)
        self.model = await self._stack.enter_async_context(
            ScriptedModel(steps or obedient(), strict=False)
        )
        models = ModelClient([Route(prefix="openai", base_url=self.model.base_url)], environ={})
        self._stack.push_async_callback(models.aclose)
        harness = Harness(self.bus, models)
        await harness.start()
        self._stack.push_async_callback(harness.stop, 0.0)
        known = {**_agents(), **agents}
        self.worker = AgentWorker(self.bus, known, pool="app", config=_config())
        await self.worker.start()
        self._stack.push_async_callback(self.worker.stop)
        await self.start_sandboxes()
        await self.start_sessions()

    async def start_sandboxes(self) -> None:
        self.sandboxes = await self._serving(LocalProvider(self.home))

    async def start_elsewhere(self, home: Path) -> SandboxActor:
        """Serve a provider of another name, with boxes in another directory."""
        provider = AgentProvider(Elsewhere(home))

        async def clean_up() -> None:
            for folder in sorted((home / "sandboxes").glob("[!.]*")):
                await provider.delete(folder.name)
            await provider.close()

        self._stack.push_async_callback(clean_up)
        return await self._serving(provider)

    async def _serving(self, provider: Provider) -> SandboxActor:
        actor = SandboxActor(
            await self.bus_of(), provider, node="here", reap_every_s=3600, watch_every_s=3600
        )
        await actor.start()
        self._stack.push_async_callback(actor.stop, 0.0)
        return actor

    async def start_sessions(self) -> SessionsActor:
        actor = SessionsActor(await self.bus_of())
        await actor.start()
        self._stack.push_async_callback(actor.stop, 0.0)
        self.actors.append(actor)
        return actor

    # --- what people do ------------------------------------------------------------------------

    async def ask(self, session: str, request: SessionRequest, **more: Any) -> SessionState:
        """Ask, and wait until it is done."""
        sequence = await self.bus.sessions.request(session, request, **more)
        return await self.bus.sessions.applied(session, sequence, timeout_s=30)

    async def create(self, session: str, agent: str = SMITH, **more: Any) -> SessionState:
        return await self.ask(session, CreateSession(agent=agent, **more))

    async def say(self, session: str, message: str, **more: Any) -> SessionState:
        """Send a message, and wait until all turns are over."""
        await self.ask(session, SendMessage(input=message, **more))
        return await self.idle(session)

    async def idle(self, session: str) -> SessionState:
        async def look() -> SessionState | None:
            state = await self.state(session)
            return state if state.active is None and not state.queue else None

        return await eventually(look, within_s=30, what=f"{session} is idle")

    async def at_work(self, session: str) -> SessionState:
        async def look() -> SessionState | None:
            state = await self.state(session)
            return state if state.active is not None else None

        return await eventually(look, what=f"{session} is at work")

    async def state(self, session: str) -> SessionState:
        state = (await self.bus.sessions.read(session)).state
        assert state is not None
        return state

    async def until_box(self, session: str, box: str) -> SessionState:
        async def look() -> SessionState | None:
            state = await self.state(session)
            is_there = state.workspace is not None and state.workspace.box == box
            return state if is_there else None

        return await eventually(look, within_s=30, what=f"{session} is {box}")

    async def history(self, session: str) -> list[Any]:
        conversation = await self.bus.conversations.read(session_conversation(session))
        return conversation.history

    async def record(self, session: str, generation: int = 1) -> SandboxRecord:
        sandbox = session_sandbox(session, generation)
        return SandboxRecord.of(sandbox, await self.bus.sandboxes.read(sandbox))

    def boxes(self) -> list[str]:
        """The boxes on this machine."""
        return sorted(it.name for it in (self.home / "sandboxes").glob("[!.]*"))

    async def saved(self, tree: str, path: str) -> str:
        """A file of a checkpoint."""
        return b"".join([part async for part in self.store.read_file(tree, path)]).decode()

    async def files(self, tree: str) -> list[str]:
        return [it.path for it in await self.store.entries(tree)]


def _agents() -> dict[str, Any]:
    start = Manifest(entries={"given.txt": File(content=b"given\n")})
    smith = SandboxAgent(name=SMITH, model="gpt-test", default_manifest=start)
    talker = Agent(name=TALKER, model="gpt-test")
    till = SandboxAgent(name=TILL, model="gpt-test", default_manifest=start, tools=[refund])
    return {SMITH: smith, TALKER: talker, TILL: till}


def _config() -> RunConfig:
    return RunConfig(sandbox=SandboxRunConfig(UnixLocalSandboxClient()))


@contextlib.asynccontextmanager
async def desk(
    server: NatsServer,
    home: Path,
    steps: list[Step] | None = None,
    agents: Mapping[str, Any] | None = None,
) -> AsyncIterator[Desk]:
    """Nothing of it is left afterwards. ``agents``: more than it has by itself."""
    try:
        async with contextlib.AsyncExitStack() as stack:
            place = Desk(server, home, stack)
            await place.set_up(steps, agents or {})
            yield place
    finally:
        provider = LocalProvider(home)
        for folder in sorted((home / "sandboxes").glob("[!.]*")):
            await provider.delete(folder.name)
        await provider.close()
