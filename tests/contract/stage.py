"""A provider on stage: one event loop, one provider, one shared box for the tests of a module."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import uuid
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from sandstream_providers.agent_provider import AgentProvider
from sandstream_providers.interface import (
    Box,
    BoxSpec,
    ExecSpec,
    FileWrite,
    OnOutput,
    Output,
    Provider,
    ResolveRule,
)

from contract.providers import Contender

T = TypeVar("T")
OWNER = f"contract-{os.getpid()}"
"""Other processes of the tests may use the same service at the same time."""
COMMAND_S = 40.0
"""No command of a test runs longer, so that none is left behind."""
_numbers = itertools.count(1)


def new_op() -> str:
    return f"op-{next(_numbers)}-{uuid.uuid4().hex[:8]}"


class Stage:
    """What a test gets."""

    def __init__(self, contender: Contender, home: Path, runner: asyncio.Runner) -> None:
        self.contender = contender
        self.home = home
        self._runner = runner
        self.provider: Provider = contender.open(home)
        self._shared = ""
        self._specs: dict[str, BoxSpec] = {}

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(story)

    # --- boxes ------------------------------------------------------------------------------------

    def spec(self, **fields: Any) -> BoxSpec:
        key = fields.pop("key", None) or f"c-{uuid.uuid4().hex[:12]}"
        labels = {"owner": OWNER, "sandbox": key, "generation": "1", **fields.pop("labels", {})}
        options = {**self.contender.box_options, **fields.pop("options", {})}
        spec = BoxSpec(key=key, labels=labels, options=options, **fields)
        self._specs[key] = spec
        return spec

    async def box(self) -> Box:
        """The box that the tests of a module share; each works in a directory of its own."""
        if not self._shared:
            spec = self.spec()
            await self.provider.create(spec)
            self._shared = spec.key
        found = await self.provider.get(self._shared)
        assert found is not None
        return found

    @contextlib.asynccontextmanager
    async def fresh(self, **fields: Any) -> AsyncIterator[Box]:
        """A box for one test."""
        box = await self.provider.create(self.spec(**fields))
        try:
            yield box
        finally:
            await self.provider.delete(box.key)

    @contextlib.asynccontextmanager
    async def another_process(self) -> AsyncIterator[Provider]:
        """A second provider object on the same boxes: it shares nothing but what is on disk or
        with the service, and what a caller knows from its log.
        """
        provider = self.contender.open(self.home)
        if isinstance(provider, AgentProvider):
            for spec in self._specs.values():
                provider.recall(spec, "")
        try:
            yield provider
        finally:
            await provider.close()

    async def crash(self, key: str) -> None:
        await self.contender.crash(self.home, key)

    async def lose(self, key: str) -> None:
        await self.contender.lose(self.home, key)

    async def leave(self) -> None:
        """No box is left, whatever the tests did."""
        for info in await self.provider.list_owned(OWNER):
            await self.provider.delete(info.key)
        await self.provider.close()


class Place:
    """A directory of its own in a box, and short names for what tests do there."""

    def __init__(self, box: Box, path: str) -> None:
        self.box = box
        self.path = path
        self.rule = ResolveRule(roots=[box.root])

    def at(self, name: str) -> str:
        return f"{self.path}/{name}"

    async def sh(self, script: str, **fields: Any) -> Output:
        return await sh(self.box, script, cwd=self.path, **fields)

    async def said(self, script: str) -> str:
        return await said(self.box, script, cwd=self.path)

    async def write(self, name: str, data: bytes, **fields: Any) -> None:
        change = FileWrite(path=self.at(name), data=data, **fields)
        await self.box.change(new_op(), [change], self.rule)

    async def change(self, *changes: FileWrite) -> None:
        await self.box.change(new_op(), changes, self.rule)

    async def read(self, name: str) -> bytes:
        return await self.box.read(self.at(name), self.rule)

    async def tree(self) -> list[str]:
        """All there is, with kinds, modes, link targets and contents: equal means nothing changed.

        Without times, which a change that was undone may move.
        """
        script = (
            "find . -mindepth 1 -exec stat -c '%n %F %a %N' {} ';' "
            "-type f -exec sha256sum {} ';' | sort"
        )
        return (await self.said(script)).splitlines()


async def place_in(box: Box) -> Place:
    path = f"{box.root}/{new_op()}"
    await box.make_dir(new_op(), path, ResolveRule(roots=[box.root]))
    return Place(box, path)


async def run(
    box: Box,
    *argv: str,
    op: str | None = None,
    wait_s: float | None = None,
    on_output: OnOutput | None = None,
    **fields: Any,
) -> Output:
    given = {"cwd": box.root, "timeout_s": COMMAND_S, **fields}
    spec = ExecSpec(argv=list(argv), **given)
    return await box.run(op or new_op(), spec, wait_s=wait_s, on_output=on_output)


async def sh(box: Box, script: str, **fields: Any) -> Output:
    return await run(box, "sh", "-c", script, **fields)


async def said(box: Box, script: str, **fields: Any) -> str:
    """What a script wrote; it must succeed."""
    output = await sh(box, script, **fields)
    assert output.exit_code == 0, output
    return output.stdout.decode()


async def works(box: Box) -> None:
    """Whatever happened before, the next command runs."""
    assert await said(box, "echo fine") == "fine\n"


class Heard:
    """Live output, as it came, and a way to wait for a part of it."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, int, bytes]] = []
        self._came = asyncio.Event()

    def __call__(self, stream: str, offset: int, data: bytes) -> None:
        self.parts.append((stream, offset, data))
        self._came.set()

    def of(self, stream: str) -> bytes:
        """The stream put together; every part must begin where the one before ended."""
        whole = b""
        for name, offset, data in self.parts:
            if name == stream:
                assert offset == len(whole), f"{stream}: {offset} after {len(whole)} bytes"
                whole += data
        return whole

    async def until(self, text: bytes, stream: str = "stdout") -> None:
        async with asyncio.timeout(COMMAND_S):
            while text not in self.of(stream):
                self._came.clear()
                await self._came.wait()
