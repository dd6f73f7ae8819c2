"""Sessions on stage: the public API over a real server, for the tests of a module."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import os
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from contract.providers import Contender
from sandstream._run.process import Process
from sandstream.sandbox.errors import SandboxError
from sandstream.sandbox.session.dependencies import Dependencies
from sandstream.sandbox.session.sandbox_session import SandboxSession
from sandstream.sandbox.workspace_paths import SandboxPathGrant

T = TypeVar("T")
_numbers = itertools.count(1)


class SessionStage:
    """What a test gets: clients, sessions that are gone afterwards, one that is shared."""

    def __init__(
        self, contender: Contender, home: Path, server_url: str, runner: asyncio.Runner
    ) -> None:
        self.contender = contender
        self.home = home
        self.server_url = server_url
        self._runner = runner
        self._shared: SandboxSession | None = None

    def open(self) -> None:
        """This loop's process belongs to the module's server and home from now on."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment().items():
                patch.setenv(name, value)
            self._runner.run(Process.of_this_loop())

    def environment(self) -> dict[str, str]:
        return {
            "NATS_URL": self.server_url,
            "SANDSTREAM_HOME": str(self.home),
            **self.contender.environment(),
        }

    def program_environment(self) -> dict[str, str]:
        """For another process on the same server and home."""
        paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            **self.environment(),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(story)

    # --- sessions ---------------------------------------------------------------------------------

    def client(self, dependencies: Dependencies | None = None) -> Any:
        assert self.contender.client is not None, "session tests need a client"
        return self.contender.client(dependencies=dependencies)

    def options(self, **options: Any) -> Any:
        assert self.contender.options is not None, "session tests need a client"
        return self.contender.options(**options)

    def grant(self, path: Path, *, read_only: bool = False) -> SandboxPathGrant:
        """Shows a directory of this machine at the same path in the sandbox."""
        inside = self.client().settings(self.options()).grants_inside
        host_path = str(path) if inside else None
        return SandboxPathGrant(path=str(path), host_path=host_path, read_only=read_only)

    def unmade(self, client: Any = None, **given: Any) -> SandboxSession:
        """A session whose box does not exist yet. ``start`` makes it, also where ``create`` would
        have made it already.
        """
        client = client or self.client()
        session: SandboxSession = client.session_of(client.new_state(**given), given.get("options"))
        return session

    async def shared(self) -> SandboxSession:
        """The session that the tests of a module share; each works in a directory of its own."""
        session = self._shared
        if session is None:
            session = self._shared = await self._started()
        return session

    async def _started(self) -> SandboxSession:
        session: SandboxSession = await self.client().create()
        await session.start()
        return session

    async def place(self) -> tuple[SandboxSession, str]:
        """The shared session and a new directory in it."""
        session = await self.shared()
        name = f"place-{next(_numbers)}"
        await session.mkdir(name)
        return session, name

    @contextlib.asynccontextmanager
    async def fresh(self, client: Any = None, **given: Any) -> AsyncIterator[SandboxSession]:
        """A started session for one test."""
        client = client or self.client()
        session = await client.create(**given)
        try:
            await session.start()
            yield session
        finally:
            await client.delete(session)

    async def key_of(self, session: SandboxSession) -> str:
        return (await session.remote.record()).key

    async def lose(self, session: SandboxSession) -> None:
        """The machine loses the session's box."""
        await self.contender.lose(self.home, await self.key_of(session))

    async def leave(self) -> None:
        if self._shared is not None:
            await self.client().delete(self._shared)


async def said(session: SandboxSession, script: str) -> str:
    """What a script wrote; it must succeed."""
    result = await session.exec(script)
    assert result.ok(), result
    return result.stdout.decode()


async def write(session: SandboxSession, path: str, data: bytes) -> None:
    await session.write(path, io.BytesIO(data))


async def content(session: SandboxSession, path: str) -> bytes:
    stream = await session.read(path)
    try:
        found: bytes = stream.read()
        return found
    finally:
        stream.close()


@contextlib.contextmanager
def refused(error_class: type[SandboxError], code: str, **facts: object) -> Any:
    """The block must fail with this class, its stable code, and these facts in its context."""
    with pytest.raises(error_class) as caught:
        yield caught
    assert caught.value.code == code
    assert str(caught.value)
    assert facts.items() <= caught.value.context.items(), caught.value.context
