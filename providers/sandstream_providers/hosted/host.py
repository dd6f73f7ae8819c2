"""Boxes at a vendor: exactly one for each key, found again by any process that has the account.

The caller has written down what it wants (the specification, with a key that is never used again)
before it asks. So after a lost answer the box is looked for by its name or key, and adopted only if
its labels say that it is ours. Nothing about a box is kept on this machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal, TypeVar

import msgspec

from sandstream_providers.box.link import Streams
from sandstream_providers.box_host import BoxHost, HostedBox
from sandstream_providers.hosted import vendor as names
from sandstream_providers.hosted.accounts import accounts_of
from sandstream_providers.hosted.calls import Deadlines, patiently, within
from sandstream_providers.hosted.errors import (
    AgentFailed,
    BoxAsleep,
    CannotPause,
    NameTaken,
    NoRoot,
    NoSuchBox,
    VendorBusy,
    VendorRefused,
    VendorSilent,
)
from sandstream_providers.hosted.handshake import Greeted, greet
from sandstream_providers.hosted.shell_start import prepared
from sandstream_providers.hosted.shells import VendorShell
from sandstream_providers.hosted.streams import streams_of
from sandstream_providers.hosted.vendor import PortAddress, Terminal, Vendor, VendorBox
from sandstream_providers.interface import BoxGone, BoxInfo, BoxSpec, ProviderError
from sandstream_providers.shell.channel import Shell, ShellSettings

logger = logging.getLogger(__name__)

T = TypeVar("T")
_CHECK_S = 10.0
"""People wait for the answer."""
_LOOK_S = 0.5
_COPY = "copy-of-"
"""Before the key of a second box of the same key: an engine that ignores our key has made both."""


class Known(msgspec.Struct):
    """What this process knows of a box."""

    spec: BoxSpec | None = None
    box_id: str = ""
    hosted: HostedBox | None = None
    """As it was when it was last greeted."""
    waiting: tuple[Terminal, Greeted] | None = None
    """A terminal that is linked to the agent and not used yet."""
    was_stopped: bool = False
    """By this process, and not woken since: vendors may call that paused."""


class HostedHost(BoxHost):
    """The boxes of one account at a vendor."""

    verifies_wake = True
    """Vendors lose files of boxes that sleep. The caller compares them with its checkpoint."""

    def __init__(
        self, vendor: Vendor, *, agents: bool = True, deadlines: Deadlines | None = None
    ) -> None:
        """Args:
        vendor: Closed together with this host.
        agents: False: no box gets our agent, even if it has Python.
        deadlines: None: those of :class:`.calls.Deadlines`.
        """
        self.vendor = vendor
        self.name = vendor.name
        self.powers = vendor.powers
        self._agents = agents
        self._deadlines = deadlines or Deadlines()
        self._known: dict[str, Known] = defaultdict(Known)
        self._pumps: set[asyncio.Task[None]] = set()
        """One for each connection to an agent."""

    @property
    def keep_alive_s(self) -> float:
        return self.vendor.keep_s

    async def check(self) -> dict[str, str]:
        patience_s = min(_CHECK_S, self._deadlines.patience_s)
        try:
            facts = await patiently(self.vendor.check, patience_s=patience_s)
        except NoSuchBox as error:
            raise VendorRefused(
                f"what answers is not the API of {self.vendor.label}: is its address right? {error}"
            ) from error
        return {"isolation": f"by {self.vendor.label}", **facts}

    def recall(self, spec: BoxSpec, vendor_id: str) -> None:
        """Tell what the log says of a box, which another process may have made."""
        known = self._known[spec.key]
        known.spec = spec
        known.box_id = vendor_id or known.box_id

    # --- life -------------------------------------------------------------------------------------

    async def create(self, spec: BoxSpec) -> HostedBox:
        self.vendor.check_options(spec)
        accounts_of(spec)
        known = self._known[spec.key]
        known.spec = spec
        box = await self._made(spec)
        known.box_id = box.id
        if box.state == "failed":
            await self.delete(spec.key)
            raise ProviderError(f"the sandbox did not start: {box.reason or 'the vendor failed'}")
        return await self._running(spec, box, is_new=not spec.may_exist)

    async def _made(self, spec: BoxSpec) -> VendorBox:
        """The one box of this specification."""
        if spec.may_exist:
            found = await self._found(spec)
            if found is not None:
                return found
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._deadlines.patience_s
        while True:
            try:
                return await self._asked(lambda: self.vendor.create(spec), again=False)
            except NameTaken:
                found = await self._found(spec)
                if found is not None:
                    return found
                if loop.time() > deadline:  # it is being removed, or the vendor contradicts itself
                    raise
            except VendorSilent:
                found = await self._found(spec)
                if found is not None:
                    return found
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(_LOOK_S)

    async def _found(self, spec: BoxSpec) -> VendorBox | None:
        """Raises ProviderError if a box of that name is not ours."""
        found = await self._asked(lambda: self.vendor.find(spec))
        if found is None or _is_of(spec, found):
            return found
        raise ProviderError(
            f"{self.vendor.label} has another sandbox with the name "
            f"{found.name!r} ({found.id}): choose another name, or remove it there"
        )

    async def get(self, key: str) -> HostedBox | None:
        known = self._known[key]
        box = await self._looked_up(key)
        if box is None or box.state == "failed":
            await self._forget(key)
            return None
        if box.state == "running" and known.hosted is not None:
            return msgspec.structs.replace(known.hosted, started_now=False)
        if known.spec is None:
            raise ProviderError(f"nothing is known of sandbox {key}")
        try:
            return await self._running(known.spec, box)
        except NoSuchBox:
            await self._forget(key)
            return None

    async def stop(self, key: str) -> None:
        box_id = await self._id(key)
        if box_id is not None:
            self._let_go(key)
            await self._unless_gone(key, box_id, "stop")
            self._known[key].was_stopped = True

    async def pause(self, key: str) -> None:
        box_id = await self._id(key)
        if box_id is None:
            raise BoxGone(f"there is no running sandbox {key}")
        self._let_go(key)
        try:
            try:
                await self._asked(lambda: self.vendor.pause(box_id))
            except CannotPause:
                await self._asked(lambda: self.vendor.stop(box_id))
        except NoSuchBox as error:
            raise BoxGone(f"there is no running sandbox {key}") from error

    async def resume(self, key: str) -> None:
        box = await self._looked_up(key)
        if box is None or box.state == "failed":
            raise BoxGone(f"there is no sandbox {key} to resume")
        if box.state != "running":
            await self._awake(box)

    async def delete(self, key: str) -> None:
        box_id = await self._id(key)
        if key.startswith(_COPY) and any(it.box_id == box_id for it in self._known.values()):
            return  # the log has named it since the list was made: another box is the copy
        if box_id is not None:
            await self._unless_gone(key, box_id, "delete")
        await self._forget(key)

    async def list(self, owner: str) -> list[BoxInfo]:
        boxes = await self._asked(lambda: self.vendor.list(owner))
        # an engine may ignore the filter, and the reaper removes what it does not know
        ours = [box for box in boxes if box.labels.get(names.OWNER) == owner]
        return [*self._infos(ours)]

    def is_awake(self, key: str) -> bool:
        return self._known[key].hosted is not None

    async def keep_alive(self, key: str) -> None:
        box_id = self._known[key].box_id
        if box_id:
            await self.vendor.keep(box_id)

    async def address(self, key: str, port: int) -> PortAddress:
        """Where a declared port of a box is reached from outside."""
        known = self._known[key]
        options = {} if known.spec is None else known.spec.options
        return await self._asked(lambda: self.vendor.address(known.box_id, port, options))

    async def connect(self, box: HostedBox) -> Streams:
        known = self._known[box.key]
        waiting, known.waiting = known.waiting, None
        if waiting is None:
            spec = known.spec
            if spec is None:
                raise ConnectionRefusedError(f"nothing is known of sandbox {box.key}")
            try:
                waiting = await self._greeted(spec, box.vendor_id)
            except (NoSuchBox, BoxAsleep, VendorBusy, VendorSilent) as error:
                raise ConnectionRefusedError(str(error)) from error
        terminal, greeted = waiting
        if _instance(box.vendor_id, greeted) != box.instance:
            # callers of the earlier agent must learn that its commands have ended
            await terminal.close()
            known.hosted = None
            raise ConnectionRefusedError("all processes of the box have ended meanwhile")
        return await streams_of(terminal, greeted.rest, self._pumps)

    async def open_shell(self, box: HostedBox) -> Shell:
        spec = self._known[box.key].spec
        if spec is None:
            raise ConnectionRefusedError(f"nothing is known of sandbox {box.key}")
        return self._shell(spec, box.vendor_id)

    async def close(self) -> None:
        for key in list(self._known):
            known = self._known.pop(key)
            if known.waiting is not None:
                await known.waiting[0].close()
        await self.vendor.close()  # with all of its terminals, so the pumps end
        if self._pumps:
            await asyncio.wait(self._pumps)

    # --- inside -----------------------------------------------------------------------------------

    async def _running(self, spec: BoxSpec, box: VendorBox, *, is_new: bool = False) -> HostedBox:
        """The box, awake, with its agent or its directories in place."""
        if box.state != "running":
            await self._awake(box)
        known = self._known[spec.key]
        known.box_id, known.was_stopped = box.id, False
        try:
            known.hosted = await self._prepared(spec, box.id, is_new=is_new)
        except BoxAsleep:  # the vendor found the box of an earlier order, and did not wake it
            await self._awake(msgspec.structs.replace(box, state="stopped"))
            known.hosted = await self._prepared(spec, box.id)
        return known.hosted

    async def _awake(self, box: VendorBox) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._deadlines.start_s
        now: VendorBox | None = box
        while now is not None and now.state != "running":
            if now.state == "failed":
                raise ProviderError(f"the sandbox cannot be started again: {now.reason}")
            if loop.time() > deadline:
                waited = f"{self._deadlines.start_s:.0f} s"
                raise VendorSilent(f"the sandbox has not started within {waited}")
            if now.state in ("paused", "stopped"):
                await self._asked(lambda: self.vendor.wake(box.id))
                return
            await asyncio.sleep(_LOOK_S)
            now = await self._asked(lambda: self.vendor.look(box.id))
        if now is None:
            raise NoSuchBox("the sandbox was removed while it was started")

    async def _prepared(self, spec: BoxSpec, box_id: str, *, is_new: bool = False) -> HostedBox:
        started = await self._agent_of(spec, box_id, is_new=is_new) if self._agents else ""
        if started:
            return HostedBox(
                key=spec.key,
                root=spec.root,
                instance=started,
                vendor_id=box_id,
                silent_s=self._deadlines.silent_s,
                started_now=True,
            )
        shell = self._shell(spec, box_id)
        try:
            folder, env, boot = await self._asked(lambda: prepared(shell, spec))
        except NoRoot as error:
            owner = str(error.data["owner"])
            await self._asked(lambda: self.vendor.make_root(box_id, spec.root, owner))
            folder, env, boot = await self._asked(lambda: prepared(shell, spec))
        return HostedBox(
            key=spec.key,
            root=spec.root,
            instance=f"{box_id}/{boot}",
            kind="shell",
            shell=ShellSettings(
                records=f"{folder}/shell", env={**env, **spec.env}, limits=spec.limits
            ),
            vendor_id=box_id,
            started_now=True,
        )

    async def _agent_of(self, spec: BoxSpec, box_id: str, *, is_new: bool) -> str:
        """Which start of its agent answers, with a terminal kept ready. Empty: it has none."""
        try:
            terminal, greeted = await self._greeted(spec, box_id, is_new=is_new)
        except AgentFailed as error:
            facts = {"key": spec.key, "box": box_id, "why": str(error)}
            logger.warning("a box is used without our agent, which is slower", extra=facts)
            return ""
        known = self._known[spec.key]
        if known.waiting is not None:
            await known.waiting[0].close()
            known.waiting = None
        if not greeted.agent:
            await terminal.close()
            return ""
        known.waiting = (terminal, greeted)
        return _instance(box_id, greeted)

    async def _greeted(
        self, spec: BoxSpec, box_id: str, *, is_new: bool = False
    ) -> tuple[Terminal, Greeted]:
        """A terminal that is linked to the agent; the box may be just up, so it is tried again."""

        async def make_root(owner: str) -> None:
            await self._asked(lambda: self.vendor.make_root(box_id, spec.root, owner))

        async def attempt() -> tuple[Terminal, Greeted]:
            terminal = await self.vendor.terminal(box_id, as_root=bool(accounts_of(spec)))
            try:
                greeted = await within(
                    "start the agent",
                    self._deadlines.greeting_s,
                    greet(terminal, spec, make_root, is_new=is_new),
                )
                return terminal, greeted
            except OSError as error:
                await terminal.close()
                raise VendorSilent(f"the connection to the sandbox broke: {error}") from error
            except BaseException:
                await terminal.close()
                raise

        return await self._asked(attempt)

    def _shell(self, spec: BoxSpec, box_id: str) -> VendorShell:
        return VendorShell(
            self.vendor,
            spec.key,
            box_id,
            is_root=bool(accounts_of(spec)),
            patience_s=self._deadlines.patience_s,
        )

    async def _asked(self, call: Callable[[], Awaitable[T]], *, again: bool = True) -> T:
        return await patiently(call, again=again, patience_s=self._deadlines.patience_s)

    async def _looked_up(self, key: str) -> VendorBox | None:
        known = self._known[key]
        if known.box_id:
            box_id = known.box_id
            return await self._asked(lambda: self.vendor.look(box_id))
        spec = known.spec
        if spec is None:
            return None
        found = await self._asked(lambda: self.vendor.find(spec))
        return found if found is not None and _is_of(spec, found) else None

    async def _id(self, key: str) -> str | None:
        """The vendor's id of a box. None: there is no box."""
        box_id = self._known[key].box_id
        if not box_id and key.startswith(_COPY):
            box_id = key.removeprefix(_COPY)
        if box_id:
            return box_id
        found = await self._looked_up(key)
        return None if found is None else found.id

    async def _unless_gone(self, key: str, box_id: str, what: str) -> None:
        try:
            await self._asked(lambda: getattr(self.vendor, what)(box_id))
        except NoSuchBox:
            logger.info("a box was gone already", extra={"key": key, "box": box_id})

    def _infos(self, boxes: Iterable[VendorBox]) -> Iterable[BoxInfo]:
        by_key: dict[str, list[VendorBox]] = defaultdict(list)
        for box in sorted(boxes, key=lambda it: (it.created_at, it.id)):
            if key := box.labels.get(names.KEY, ""):
                by_key[key].append(box)
        for key, same in by_key.items():
            known = self._known[key]
            known.box_id = known.box_id or same[0].id
            used = next((box for box in same if box.id == known.box_id), same[0])
            for box in same:
                yield BoxInfo(
                    key=key if box is used else f"{_COPY}{box.id}",
                    labels=_own_labels(box.labels),
                    state=self._state(key, box),
                    created_at=box.created_at,
                    vendor_id=box.id,
                )

    def _state(self, key: str, box: VendorBox) -> Literal["running", "paused", "stopped"]:
        if box.state == "paused" and self._known[key].was_stopped:
            return "stopped"
        return box.state if box.state in ("running", "paused") else "stopped"

    def _let_go(self, key: str) -> None:
        """What was known of its agent does not hold after a sleep."""
        self._known[key].hosted = None

    async def _forget(self, key: str) -> None:
        known = self._known.pop(key, None)
        if known is not None and known.waiting is not None:
            await known.waiting[0].close()


def _is_of(spec: BoxSpec, box: VendorBox) -> bool:
    """Do its labels say that it was made from this specification?"""
    said = box.labels.get(names.KEY), box.labels.get(names.OWNER, "")
    return said == (spec.key, spec.labels.get("owner", ""))


def _instance(box_id: str, greeted: Greeted) -> str:
    return f"{box_id}/{greeted.started}"


def _own_labels(labels: dict[str, str]) -> dict[str, str]:
    """As the specification named them."""
    return {
        name.removeprefix(names.PREFIX): value
        for name, value in labels.items()
        if name.startswith(names.PREFIX) and name != names.KEY
    }
