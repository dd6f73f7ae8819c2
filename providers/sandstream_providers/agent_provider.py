"""One provider for all hosts: boxes of a :class:`BoxHost`, reached through the agent in them."""

from __future__ import annotations

import asyncio
import functools

from sandstream_providers.addresses import Resolve, resolve_host
from sandstream_providers.box.client import AgentBox
from sandstream_providers.box_host import (
    BoxHost,
    CloneRooms,
    HostedBox,
    LeasedBoxes,
    ShellBoxes,
    StartWatch,
)
from sandstream_providers.git.fetch import fetch
from sandstream_providers.git.room import temporary_room
from sandstream_providers.interface import (
    Box,
    BoxGone,
    BoxInfo,
    BoxSpec,
    ProviderError,
    check_key,
)
from sandstream_providers.shell.box import ShellBox

AnyBox = AgentBox | ShellBox
ANSWER_S = 60.0
"""How long a box that was just started may take to answer."""
LOOK_S = 0.1
RETRY_S = 0.02


class AgentProvider:
    """Implements :class:`sandstream_providers.interface.Provider` and ``Leasing``."""

    def __init__(self, host: BoxHost, *, resolve: Resolve = resolve_host) -> None:
        """Args:
        host: Makes and finds the boxes. Closed together with this provider.
        resolve: Finds the addresses of hosts that repositories are cloned from.
        """
        self.host = host
        self.name = host.name
        self._resolve = resolve
        self._boxes: dict[str, tuple[HostedBox, AnyBox]] = {}

    @property
    def powers(self) -> frozenset[str]:
        return self.host.powers

    async def check(self) -> dict[str, str]:
        return await self.host.check()

    async def create(self, spec: BoxSpec) -> Box:
        check_key(spec.key)
        hosted = await self.host.create(spec)
        try:
            return await self._answering(hosted)
        except ProviderError as error:
            if not hosted.started_now:
                raise
            message = f"sandbox {spec.key} did not start: {error}{self._log_tail(spec.key)}"
            await self.delete(spec.key)
            raise ProviderError(message) from error

    async def get(self, key: str) -> Box | None:
        hosted = await self.host.get(check_key(key))
        if hosted is None:
            return None
        try:
            return await self._answering(hosted)
        except ProviderError as error:
            if not hosted.started_now:
                raise
            message = f"sandbox {key} did not start again: {error}{self._log_tail(key)}"
            raise ProviderError(message) from error

    async def stop(self, key: str) -> None:
        await self._let_go(check_key(key))
        await self.host.stop(key)

    async def pause(self, key: str) -> None:
        await self.host.pause(check_key(key))

    async def resume(self, key: str) -> None:
        await self.host.resume(check_key(key))

    async def delete(self, key: str) -> None:
        await self._let_go(check_key(key))
        await self.host.delete(key)

    async def list_owned(self, owner: str) -> list[BoxInfo]:
        return await self.host.list(owner)

    async def fetch_git(
        self, box: Box, url: str, ref: str, target: str, *, public_only: bool = False
    ) -> None:
        known = self._boxes.get(box.key)
        roots = [box.root, *(known[0].roots if known is not None else ())]
        rooms = self.host.clone_room(box.key) if isinstance(self.host, CloneRooms) else None
        async with rooms or temporary_room() as room:
            await fetch(
                room, box, roots, url, ref, target, public_only=public_only, resolve=self._resolve
            )

    def hold(self, key: str) -> None:
        if isinstance(self.host, LeasedBoxes):
            self.host.hold(key)

    async def stop_idle(self) -> None:
        if isinstance(self.host, LeasedBoxes):
            for key in self.host.idle():
                await self.stop(key)

    async def close(self) -> None:
        for key in list(self._boxes):
            await self._let_go(key)
        await self.host.close()

    # --- boxes ------------------------------------------------------------------------------------

    async def _answering(self, hosted: HostedBox) -> AnyBox:
        """The client of this box; of one that was just started, when it answers."""
        known = self._boxes.get(hosted.key)
        if known is not None and known[0].instance == hosted.instance:
            return known[1]
        if known is not None and hosted.started_now:
            await self._let_go(hosted.key)  # its users must get the box again
        box = self._client(hosted)
        self._boxes[hosted.key] = (hosted, box)
        if hosted.started_now:
            await self._first_answer(hosted.key, box)
        return box

    def _client(self, hosted: HostedBox) -> AnyBox:
        if hosted.kind == "agent":
            connect = functools.partial(self.host.connect, hosted)
            return AgentBox(hosted.key, hosted.root, connect, hosted.ports, hosted.token)
        if not isinstance(self.host, ShellBoxes) or hosted.shell is None:
            raise ProviderError(f"the provider {self.name} cannot run scripts in its boxes")
        open_shell = functools.partial(self.host.open_shell, hosted)
        return ShellBox(hosted.key, hosted.root, open_shell, hosted.shell, hosted.ports)

    async def _first_answer(self, key: str, box: AnyBox) -> None:
        answer = asyncio.ensure_future(_once_it_listens(box))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ANSWER_S
        try:
            while not (await asyncio.wait([answer], timeout=LOOK_S))[0]:
                if isinstance(self.host, StartWatch) and not self.host.is_running(key):
                    raise ProviderError("its first process ended")
                if loop.time() > deadline:
                    raise ProviderError(f"its agent did not answer within {ANSWER_S:.0f} s")
        except BaseException:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)
            raise
        await answer

    async def _let_go(self, key: str) -> None:
        known = self._boxes.pop(key, None)
        if known is not None:
            await known[1].close()

    def _log_tail(self, key: str) -> str:
        return self.host.log_tail(key) if isinstance(self.host, StartWatch) else ""


async def _once_it_listens(box: AnyBox) -> None:
    while True:
        try:
            await box.sessions()
            return
        except BoxGone:
            if box.closed:  # it was stopped or deleted meanwhile
                raise
            await asyncio.sleep(RETRY_S)
