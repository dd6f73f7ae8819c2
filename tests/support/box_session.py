"""A session over a real box, with as much of a session as capabilities use."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from providers.box.agent_process import running_agent
from sandstream_actors.sandbox.tools.dispatch import run_tool
from sandstream_providers.box.client import AgentBox
from sandstream_providers.interface import ExecSpec, FileWrite, NotFound, ResolveRule

from sandstream.sandbox.errors import WorkspaceReadNotFoundError
from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.types import ExecResult


class State:
    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest


class Listed:
    def __init__(self, path: str, kind: str) -> None:
        self.path = path
        self.kind = kind

    def is_dir(self) -> bool:
        return self.kind == "dir"


class BoxSession:
    """Each operation is one of the box."""

    def __init__(self, box: AgentBox, root: Path) -> None:
        self.box = box
        self.root = root
        self.state = State(Manifest(root=str(root)))
        self.rule = ResolveRule(roots=[str(root)])
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self._ops = 0

    def supports_pty(self) -> bool:
        return True

    async def run_tool(self, name: str, arguments: str, **scope: Any) -> Any:
        self.calls.append((name, arguments, scope))
        outcome = await run_tool(
            name,
            arguments,
            self.box,
            rule=self.rule,
            root=str(self.root),
            cwd=scope.get("cwd", ""),
            op=self._op(),
        )
        return outcome.output

    async def read(self, path: Path, user: object = None) -> io.BytesIO:
        try:
            return io.BytesIO(await self.box.read(str(self.root / path), self.rule))
        except NotFound as error:
            raise WorkspaceReadNotFoundError(path=path) from error

    async def read_ends(
        self, path: Path, *, max_bytes: int, user: object = None
    ) -> tuple[bytes, bytes, int]:
        data = (await self.read(path, user)).read()
        return data[:max_bytes], data[max_bytes:][-max_bytes:], len(data)

    async def write(self, path: Path, data: Any, user: object = None) -> None:
        changes = [FileWrite(path=str(path), data=data.read())]
        await self.box.change(self._op(), changes, self.rule)

    async def mkdir(self, path: Path, parents: bool = False, user: object = None) -> None:
        await self.box.make_dir(self._op(), str(path), self.rule, parents=parents)

    async def ls(self, path: Path, user: object = None) -> list[Listed]:
        entries = await self.box.list(str(path), self.rule)
        return [Listed(f"{path}/{entry.path}", entry.kind) for entry in entries]

    async def exec(self, *command: str, shell: bool = True) -> ExecResult:
        spec = ExecSpec(argv=list(command), cwd=str(self.root))
        output = await self.box.run(self._op(), spec)
        code = output.exit_code
        assert code is not None
        return ExecResult(stdout=output.stdout, stderr=output.stderr, exit_code=code)

    def _op(self) -> str:
        self._ops += 1
        return f"session-{self._ops}"


def in_session(home: Path, story: Callable[[BoxSession], Awaitable[None]]) -> None:
    """Run a test's story in a session of its own."""

    async def run() -> None:
        async with running_agent(home) as agent:
            await story(BoxSession(agent.box(), agent.root))

    asyncio.run(run())
