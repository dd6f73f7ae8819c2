"""One provider for all hosts: boxes of a :class:`BoxHost`, reached through the agent in them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging

from sandstream_providers.addresses import Resolve, resolve_host
from sandstream_providers.box.client import AgentBox
from sandstream_providers.box_host import (
    BoxHost,
    CloneRooms,
    HostedBox,
    KeptAlive,
    LeasedBoxes,
    PaidBoxes,
    PortAddresses,
    Recalling,
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
    Leasing,
    PortAddress,
    Provider,
    ProviderError,
    check_key,
)
from sandstream_providers.shell.box import ShellBox

logger = logging.getLogger(__name__)

AnyBox = AgentBox | ShellBox
ANSWER_S = 30.0
"""How long a box that was just started may take to answer."""
LEAVE_S = 15.0
"""How long the end of a program may wait for its boxes to stop."""
LOOK_S = 0.1
RETRY_S = 0.02


class AgentProvider(Provider, Leasing):
    """Implements :class:`sandstream_providers.interface.Provider` and ``Leasing`` for boxes of a
    host.

    Args:
        host: Makes and finds the boxes. Closed together with this provider.
        resolve: Finds the addresses of hosts that repositories are cloned from.

    Example:
        provider = AgentProvider(ToyHost())  # your own BoxHost
        box = await provider.create(BoxSpec(key="demo-1", labels={"owner": "demo"}))
        said = await box.run("op-1", ExecSpec(argv=["echo", "hello"], cwd=box.root))
        await provider.delete("demo-1")
    """

    def __init__(self, host: BoxHost, *, resolve: Resolve = resolve_host) -> None:
        self.host = host
        self.name = host.name
        self._resolve = resolve
        self._boxes: dict[str, tuple[HostedBox, AnyBox]] = {}
        self._keeping: asyncio.Task[None] | None = None
        self._has_more = asyncio.Event()
        """There is another box to keep alive."""

    @property
    def verifies_wake(self) -> bool:
        """Whether files of a box may be missing after a pause."""
        return bool(getattr(self.host, "verifies_wake", False))

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

    def recall(self, spec: BoxSpec, vendor_id: str) -> None:
        """Note what the log says about a box, before any other call for this box.

        Args:
            spec: The specification with which the box was ordered.
            vendor_id: The vendor's own id of the box; empty if it is not known.
        """
        if isinstance(self.host, Recalling):
            self.host.recall(spec, vendor_id)

    async def address(self, box: Box, port: int) -> PortAddress:
        """Where a declared port of a box is reached from outside.

        Args:
            box: The box, as this provider returned it.
            port: A port that the box's specification declares.
        """
        if isinstance(self.host, PortAddresses):
            return await self.host.address(box.key, port)
        return PortAddress(*await box.port(port))

    def hold(self, key: str) -> None:
        if isinstance(self.host, LeasedBoxes):
            self.host.hold(key)

    async def stop_idle(self) -> None:
        if isinstance(self.host, LeasedBoxes):
            for key in self.host.idle():
                await self.stop(key)
        elif isinstance(self.host, PaidBoxes):
            await asyncio.gather(*(self._left(self.host, key) for key in list(self._boxes)))

    async def _left(self, host: PaidBoxes, key: str) -> None:
        """Stop a box in which nothing runs. If that cannot be done now, the time limit of the box
        will end it.
        """
        box = self._boxes[key][1]
        if box.closed or not host.is_awake(key):
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                if not await box.sessions():
                    await self.stop(key)
        except (ProviderError, OSError, TimeoutError) as error:
            logger.warning("a box is left running", extra={"key": key, "why": repr(error)})

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
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
        self._has_more.set()
        if isinstance(self.host, KeptAlive) and (self._keeping is None or self._keeping.done()):
            self._keeping = asyncio.create_task(self._keep(self.host))
        if hosted.started_now:
            await self._first_answer(hosted.key, box)
        return box

    def _client(self, hosted: HostedBox) -> AnyBox:
        if hosted.kind == "agent":
            connect = functools.partial(self.host.connect, hosted)
            return AgentBox(
                hosted.key,
                hosted.root,
                connect,
                hosted.ports,
                hosted.token,
                vendor_id=hosted.vendor_id,
                silent_s=hosted.silent_s,
            )
        if not isinstance(self.host, ShellBoxes) or hosted.shell is None:
            raise ProviderError(f"the provider {self.name} cannot run scripts in its boxes")
        open_shell = functools.partial(self.host.open_shell, hosted)
        return ShellBox(
            hosted.key,
            hosted.root,
            open_shell,
            hosted.shell,
            hosted.ports,
            vendor_id=hosted.vendor_id,
        )

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

    async def _keep(self, host: KeptAlive) -> None:
        """Keep alive the boxes in which something runs, and let the others reach their limit. One
        that does not answer must not make the others late.
        """
        asked: dict[str, asyncio.Task[None]] = {}
        try:
            while self._boxes:
                await self._turn(host)
                asked = {key: task for key, task in asked.items() if not task.done()}
                for key in self._boxes.keys() - asked.keys():
                    asked[key] = asyncio.create_task(self._kept(host, key))
        finally:
            for task in asked.values():
                task.cancel()
            await asyncio.gather(*asked.values(), return_exceptions=True)

    async def _kept(self, host: KeptAlive, key: str) -> None:
        known = self._boxes.get(key)
        if known is None or known[1].closed:
            return
        try:
            if await known[1].is_working():
                await host.keep_alive(key)
        except Exception as error:  # noqa: BLE001 - the others go on; its next command says why
            logger.warning("a box is not kept alive", extra={"key": key, "why": repr(error)})

    async def _turn(self, host: KeptAlive) -> None:
        """Wait until boxes must be kept again, which a new box may need earlier than the others."""
        loop = asyncio.get_running_loop()
        due = loop.time() + host.keep_alive_s
        with contextlib.suppress(TimeoutError):
            while True:
                self._has_more.clear()
                async with asyncio.timeout_at(due):
                    await self._has_more.wait()
                due = min(due, loop.time() + host.keep_alive_s)

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
