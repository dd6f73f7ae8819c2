"""E2B as a vendor of boxes: one method of the SDK for each thing that a host wants.

A box has a time to live, which E2B counts from the last call that sets it. Commands in a box need a
token that comes with the answer to ``create`` or ``connect``; it is kept, because each of these
calls costs a round trip. ``connect`` wakes a sleeping box, so a box that this process has not seen
is looked at first. Requests to a box may wake it, too: nothing is sent to a box after its pause.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shlex
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from sandstream_providers.e2b.account import Account
from sandstream_providers.e2b.control import MARGIN_S, Control
from sandstream_providers.e2b.errors import (
    Undecided,
    is_away,
    is_of_token,
    is_too_early,
    is_unknown,
    translated,
    translated_order,
)
from sandstream_providers.e2b.knowledge import Knowledge, Known, rhythm
from sandstream_providers.e2b.options import (
    DEFAULT_TIMEOUT_S,
    metadata_of,
    options_of,
    order_of,
)
from sandstream_providers.e2b.terminal import E2BTerminal
from sandstream_providers.hosted.calls import within
from sandstream_providers.hosted.errors import (
    AgentFailed,
    BoxAsleep,
    NoSuchBox,
    VendorBusy,
    VendorRefused,
    VendorSilent,
)
from sandstream_providers.hosted.handshake import no_root
from sandstream_providers.hosted.vendor import KEY, OWNER, PortAddress, Terminal, VendorBox
from sandstream_providers.interface import BoxGone, BoxSpec, ProviderError

logger = logging.getLogger(__name__)
T = TypeVar("T")

CALL_S = 30.0
"""The longest time for the answer to a small call."""
LONG_S = 120.0
"""The same for calls that start a box or save its memory."""
_UNDECIDED_S = 5.0
"""How long E2B may be unable to say what has become of an order."""
_PLAIN_PORT, _TLS_PORT = 80, 443
_ROOT = "root"
_COMMAND = (
    "_c=$SANDSTREAM_COMMAND; unset SANDSTREAM_COMMAND; "
    'printf %s {begin}; /bin/sh -c "$_c" </dev/null; printf %s {end}'
)
"""Runs in a login shell. Its profile may print text too, so only text between the marks counts.
The command itself is a variable, so that it needs no quotes.
"""


class E2BVendor:
    """Implements :class:`sandstream_providers.hosted.vendor.Vendor`."""

    name = "e2b"
    label = "E2B"
    powers = frozenset({"pty", "ports", "users", "isolated"})

    def __init__(self, account: Account, *, call_s: float = CALL_S, long_s: float = LONG_S) -> None:
        """Args:
        account: See :func:`sandstream_providers.e2b.account.account_of`.
        call_s: The longest time for the answer to a small call.
        long_s: The same for calls that start a box or save its memory.
        """
        self.account = account
        self.keep_s = rhythm(DEFAULT_TIMEOUT_S)
        """Less as soon as a box with a shorter time to live is known."""
        self._control = Control(account, call_s)
        self._long_s = long_s
        self._knowledge = Knowledge()
        self._undecided: dict[str, float] = {}
        """By key: since when E2B does not know the outcome of the order."""

    # --- orders -----------------------------------------------------------------------------------

    def check_options(self, spec: BoxSpec) -> None:
        options_of(spec)

    async def check(self) -> dict[str, str]:
        await self._control.listed({}, most=1)
        return {"engine": self.account.place, "isolation": "virtual machine"}

    async def create(self, spec: BoxSpec) -> VendorBox:
        order = order_of(spec)
        try:
            made = await self._control.call(
                "create the sandbox",
                lambda sandboxes, options: sandboxes.create(**order, **options),
                seconds=self._long_s,
                translate=translated_order,
            )
        except Undecided as error:
            if self._is_undecided_for_long(spec.key):
                raise BoxGone(f"the sandbox was made and has ended: {error}") from error
            raise
        self._undecided.pop(spec.key, None)
        metadata = metadata_of(spec, options_of(spec))
        known = self._knowledge.of(made.sandbox_id)
        known.learn(metadata)
        known.connected(made)
        self._adapt(known)
        return VendorBox(
            id=made.sandbox_id,
            name=spec.key,
            state="running",
            labels=metadata,
            created_at=time.time(),
        )

    def _is_undecided_for_long(self, key: str) -> bool:
        now = time.monotonic()
        if now - self._undecided.setdefault(key, now) < _UNDECIDED_S:
            return False
        del self._undecided[key]
        return True

    async def find(self, spec: BoxSpec) -> VendorBox | None:
        wanted = {KEY: spec.key}
        if spec.labels.get("owner"):
            wanted[OWNER] = spec.labels["owner"]
        found = [self._seen(info) for info in await self._control.listed(wanted)]
        found.sort(key=lambda it: (it.created_at, it.id))
        for copy in found[1:]:
            facts = {"key": spec.key, "kept": found[0].id, "removed": copy.id}
            logger.warning("E2B made a sandbox twice; the younger one is removed", extra=facts)
            await self.delete(copy.id)
        return found[0] if found else None

    async def list(self, owner: str) -> list[VendorBox]:
        return [self._seen(info) for info in await self._control.listed({OWNER: owner})]

    # --- life -------------------------------------------------------------------------------------

    async def look(self, box_id: str) -> VendorBox | None:
        try:
            info = await self._control.call(
                "describe the sandbox",
                lambda sandboxes, options: sandboxes.get_info(box_id, **options),
            )
        except NoSuchBox:
            self._knowledge.forget(box_id)
            return None
        return self._seen(info)

    async def wake(self, box_id: str) -> None:
        await self._connected(box_id)

    async def pause(self, box_id: str) -> None:
        await self._close_terminals(box_id)
        if not await self._paused(box_id, mode=None):
            raise VendorBusy(f"E2B did not pause the sandbox {box_id}, which is still running")

    async def stop(self, box_id: str) -> None:
        """Save the files only. Where an engine cannot do that, it saves the memory, too."""
        await self._leave_terminals(box_id)
        try:
            if await self._paused(box_id, mode="filesystem"):
                return
        except (VendorBusy, VendorSilent, VendorRefused, NoSuchBox):
            raise
        except ProviderError as error:
            logger.info("E2B cannot save files only", extra={"box": box_id, "error": str(error)})
        await self.pause(box_id)

    async def _paused(self, box_id: str, *, mode: str | None) -> bool:
        """False: it runs on. Raises ProviderError if the engine does not have this mode."""
        self._knowledge.of(box_id).fell_asleep()
        has_paused = await self._control.call(
            "pause the sandbox",
            lambda sandboxes, options: sandboxes.pause(box_id, mode=mode, **options),
            seconds=self._long_s,
        )
        if has_paused:
            return True
        box = await self.look(box_id)  # it was in no state for that: asleep already, or ending
        if box is None:
            raise _no_such_box(box_id)
        return box.state == "paused"

    async def delete(self, box_id: str) -> None:
        await self._leave_terminals(box_id)
        await self._control.call(
            "remove the sandbox", lambda sandboxes, options: sandboxes.kill(box_id, **options)
        )
        self._knowledge.forget(box_id)

    async def keep(self, box_id: str) -> None:
        known = self._knowledge.of(box_id)
        if known.is_kept:  # it is asked more often because of another box
            return
        began = time.monotonic()
        try:
            await self._control.call(
                "keep the sandbox alive",
                lambda sandboxes, options: sandboxes.set_timeout(
                    box_id, known.timeout_s, **options
                ),
            )
        except NoSuchBox as error:
            raise await self._why_away(box_id, error) from error
        known.kept_at = began

    # --- inside -----------------------------------------------------------------------------------

    async def execute(
        self, box_id: str, command: str, *, timeout_s: float, as_root: bool = False
    ) -> str:
        return await self._run(box_id, command, timeout_s=timeout_s, user=_user(as_root))

    async def make_root(self, box_id: str, root: str, owner: str) -> None:
        place = shlex.quote(root)
        command = f"mkdir -p -- {place} && chown {shlex.quote(owner)} -- {place} && echo made"
        try:
            said = await self._run(box_id, command, timeout_s=self._control.call_s, user=_ROOT)
        except VendorRefused as error:  # the template has no such user
            raise no_root(root) from error
        if said != "made\n":
            raise no_root(root)

    async def _run(
        self, box_id: str, command: str, *, timeout_s: float, user: str | None = None
    ) -> str:
        begin, end = secrets.token_hex(12), secrets.token_hex(12)

        async def run(sandbox: Any) -> str:
            said = await _output(
                sandbox.commands.run(
                    _COMMAND.format(begin=begin, end=end),
                    envs={"SANDSTREAM_COMMAND": command},
                    user=user,
                    timeout=timeout_s,
                    request_timeout=min(timeout_s, self._control.call_s),
                )
            )
            return _between(said, begin, end)

        return await self._inside("run a command", box_id, run, seconds=timeout_s)

    async def terminal(self, box_id: str, *, as_root: bool = False) -> Terminal:
        package = await self._control.package()
        seconds = self._control.call_s

        async def opened(sandbox: Any) -> E2BTerminal:
            try:
                return await E2BTerminal.open(
                    sandbox, package.PtySize, user=_user(as_root), request_s=seconds
                )
            except package.SandboxException as error:
                if is_unknown(error):
                    raise AgentFailed(f"the engine has no terminals: {error}") from error
                raise

        terminal = await self._inside("open a terminal", box_id, opened, seconds=seconds)
        terminals = self._knowledge.of(box_id).terminals
        terminals.difference_update([it for it in terminals if it.is_closed])
        terminals.add(terminal)
        return terminal

    async def address(self, box_id: str, port: int, options: dict[str, object]) -> PortAddress:
        known = self._knowledge.of(box_id)
        if not known.domain and await self.look(box_id) is None:
            raise _no_such_box(box_id)
        package = await self._control.package()
        config = package.ConnectionConfig(**self._control.options(self._control.call_s))
        host = config.get_host(box_id, known.domain or config.domain, port)
        is_plain = self.account.sandbox_url.startswith("http://")
        found = urlsplit(f"//{host}")  # the domain of a local server has a port
        usual = _PLAIN_PORT if is_plain else _TLS_PORT
        return PortAddress(found.hostname or host, found.port or usual, tls=not is_plain)

    async def close(self) -> None:
        """Let go of terminals. The SDK's connections belong to the process, and stay."""
        terminals = [it for known in self._knowledge.all() for it in known.terminals]
        await asyncio.gather(*(it.close() for it in terminals))

    async def _inside(
        self, what: str, box_id: str, work: Callable[[Any], Awaitable[T]], *, seconds: float
    ) -> T:
        """Do something with a box that is awake."""
        known = self._knowledge.of(box_id)
        has_token = known.sandbox is not None
        sandbox = known.sandbox if has_token else await self._awake(box_id)
        try:
            return await within(f"E2B: {what}", seconds + MARGIN_S, work(sandbox))
        except ProviderError:
            raise
        except Exception as error:
            known.sandbox = None
            if is_of_token(error) and has_token:  # the box has slept and has another token now
                return await self._inside(what, box_id, work, seconds=seconds)
            if is_away(error):
                raise await self._why_away(box_id, error) from error
            raise translated(what, error) from error

    async def _awake(self, box_id: str) -> Any:
        if not self._knowledge.of(box_id).is_awake:
            box = await self.look(box_id)
            if box is None:
                raise _no_such_box(box_id)
            if box.state != "running":
                raise _asleep(box_id)
        return await self._connected(box_id)

    async def _connected(self, box_id: str) -> Any:
        """Wakes the box if it sleeps. Without a time-out it would get five minutes."""
        package = await self._control.package()
        known = self._knowledge.of(box_id)

        async def connect(sandboxes: Any, options: dict[str, object]) -> Any:
            options["timeout"] = known.timeout_s
            try:
                return await sandboxes.connect(box_id, **options)
            except package.GuestUnresponsiveException:  # only its files can be used
                return await sandboxes.connect(box_id, on_resume="reboot", **options)

        sandbox = await self._control.call("start the sandbox", connect, seconds=self._long_s)
        known.connected(sandbox)
        return sandbox

    async def _why_away(self, box_id: str, error: Exception) -> ProviderError:
        """A box that sleeps and one that is gone get the same answer, so the box is looked at."""
        box = await self.look(box_id)
        if box is None:
            return _no_such_box(box_id)
        if box.state != "running":
            return _asleep(box_id)
        text = f"E2B does not reach the sandbox {box_id}, which runs: {error}"
        return VendorBusy(text) if is_too_early(error) else VendorSilent(text)

    # --- knowledge --------------------------------------------------------------------------------

    def _seen(self, info: Any) -> VendorBox:
        is_running = str(info.state) == "running"
        known = self._knowledge.of(info.sandbox_id)
        known.described(info, is_running=is_running)
        self._adapt(known)
        return VendorBox(
            id=info.sandbox_id,
            name=info.metadata.get(KEY, ""),
            state="running" if is_running else "paused",
            labels=info.metadata,
            created_at=info.started_at.timestamp(),
        )

    def _adapt(self, known: Known) -> None:
        self.keep_s = min(self.keep_s, rhythm(known.timeout_s))

    async def _close_terminals(self, box_id: str) -> None:
        """Ours only. What a terminal asks after a pause would wake the box again."""
        terminals = self._knowledge.of(box_id).terminals
        await asyncio.gather(*(it.close() for it in terminals))
        terminals.clear()

    async def _leave_terminals(self, box_id: str) -> None:
        """The same for a box whose processes end anyway."""
        terminals = self._knowledge.of(box_id).terminals
        await asyncio.gather(*(it.leave() for it in terminals))
        terminals.clear()


def _no_such_box(box_id: str) -> NoSuchBox:
    return NoSuchBox(f"E2B has no sandbox {box_id}: it was removed, or its time was over")


def _asleep(box_id: str) -> BoxAsleep:
    return BoxAsleep(f"the sandbox {box_id} is paused")


async def _output(running: Awaitable[Any]) -> str:
    import e2b

    try:
        return str((await running).stdout)
    except e2b.CommandExitException as error:  # any exit code but 0
        return str(error.stdout)


def _user(as_root: bool) -> str | None:
    """None: the template's own."""
    return _ROOT if as_root else None


def _between(said: str, begin: str, end: str) -> str:
    _, has_begun, rest = said.partition(begin)
    if not has_begun:
        raise ProviderError(
            "the sandbox's login shell ended before it ran a command: check the profile of the "
            f"template's user ({said[-200:]!r})"
        )
    output, has_ended, _ = rest.partition(end)
    if not has_ended:
        raise VendorSilent("a command in the sandbox was killed before it was done")
    return output
