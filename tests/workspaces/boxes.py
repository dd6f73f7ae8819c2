"""Boxes for these tests: a real agent on a directory of the test, with no sandbox around it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from providers.box.agent_process import running_agent
from sandstream_providers.box.client import AgentBox


@asynccontextmanager
async def open_box(home: Path) -> AsyncIterator[AgentBox]:
    """An empty box; its root is a directory that the test can look into."""
    async with running_agent(_made(home)) as agent:
        yield agent.box()


def _made(home: Path) -> Path:
    home.mkdir()
    return home
