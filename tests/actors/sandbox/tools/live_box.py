"""A box with a real agent, for tests of tools."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from providers.box.agent_process import running_agent
from sandstream_actors.sandbox.tools.dispatch import ToolOutcome, run_tool
from sandstream_providers.box.client import AgentBox
from sandstream_providers.interface import ResolveRule


class Workspace:
    """The files of the box as the host sees them, and calls as a model makes them."""

    def __init__(self, box: AgentBox, root: Path, home: Path) -> None:
        self.box = box
        self.root = root
        self.home = home
        self.cwd = ""
        self.rule = ResolveRule(roots=[str(root)])
        self._calls = 0

    async def call(self, tool: str, arguments: str, *, op: str = "", **more: Any) -> ToolOutcome:
        self._calls += 1
        return await run_tool(
            tool,
            arguments,
            self.box,
            rule=self.rule,
            root=str(self.root),
            cwd=self.cwd,
            op=op or f"call-{self._calls}",
            **more,
        )

    async def patch(self, *lines: str, op: str = "") -> ToolOutcome:
        text = "\n".join(["*** Begin Patch", *lines, "*** End Patch"])
        return await self.call("apply_patch", text, op=op)

    def write(self, path: str, text: str | bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return file

    def text(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))


def in_workspace(home: Path, story: Callable[[Workspace], Awaitable[None]]) -> None:
    """Run a test's story against a box of its own."""

    async def run() -> None:
        async with running_agent(home) as agent:
            await story(Workspace(agent.box(), agent.root, home))

    asyncio.run(run())
