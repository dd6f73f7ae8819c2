"""One account at Daytona, with the calls that all hosted providers need.

A call about a box costs one request. Commands and terminals go to the daemon in the box, whose
address every answer about the box contains.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import secrets
import shlex
import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode, urlsplit

from sandstream_providers.daytona.account import DaytonaAccount
from sandstream_providers.daytona.boxes import State, box_of, is_gone, request_of, start_s_of
from sandstream_providers.daytona.client import DaytonaClient
from sandstream_providers.daytona.errors import Conflict, DaytonaRefused
from sandstream_providers.daytona.options import name_of, options_of, read
from sandstream_providers.daytona.terminal import PROTOCOLS, DaytonaTerminal
from sandstream_providers.hosted import vendor as names
from sandstream_providers.hosted.calls import within
from sandstream_providers.hosted.errors import (
    AgentFailed,
    BoxAsleep,
    CannotPause,
    NameTaken,
    NoSuchBox,
    VendorBusy,
    VendorRefused,
    VendorSilent,
)
from sandstream_providers.hosted.handshake import no_root
from sandstream_providers.hosted.vendor import PortAddress, VendorBox
from sandstream_providers.interface import BoxSpec, PortUnavailable, ProviderError

if TYPE_CHECKING:
    from daytona_api_client_async import (
        ListSandboxesResponse,
        Sandbox,
        SandboxApi,
        SandboxListItem,
    )
    from daytona_toolbox_api_client_async import ExecuteRequest

T = TypeVar("T")

CALL_S = 30.0
CHANGE_S = 60.0
"""How long a box may take to stop, to pause, or to start if its options set no other limit."""
KILL_S = 10.0
_MARGIN_S = 5.0
"""How much later than the daemon we give up on a command."""
_LONGEST_KEEP_S = 300.0
_FIRST_LOOK_S = 0.2
_LAST_LOOK_S = 1.0
_LONGER = 1.25
"""A change is noticed late by about a quarter of the time that it took, and never by over 1 s."""
_PAGE = 200
"""The most boxes in one answer of the vendor."""
_MOST_PLACES = 10_000
_NO_PAUSE = (405, 422, 501)
_NO_TERMINALS = (404, 405, 501)


class DaytonaVendor:
    """Implements :class:`sandstream_providers.hosted.vendor.Vendor`."""

    name = "daytona"
    label = "Daytona"
    powers = frozenset({"pty", "ports", "users", "isolated"})

    def __init__(
        self, account: DaytonaAccount, *, call_s: float = CALL_S, change_s: float = CHANGE_S
    ) -> None:
        """Nothing is connected yet: the first call does it.

        Args:
            account: Whose boxes these are.
            call_s: The deadline of each call to the vendor.
            change_s: How long a box may take to stop, to pause or to start.
        """
        self.keep_s = _LONGEST_KEEP_S
        """Becomes shorter when a box is seen that the vendor would stop earlier."""
        self._client = DaytonaClient(account, call_s=call_s)
        self._change_s = change_s
        self._places: dict[str, str] = {}
        """By box: the address of its daemon."""
        self._terminals: weakref.WeakSet[DaytonaTerminal] = weakref.WeakSet()

    def check_options(self, spec: BoxSpec) -> None:
        options_of(spec)

    async def check(self) -> dict[str, str]:
        await self._client.ask("list its boxes", lambda api: api.list_sandboxes(limit=1))
        account = self._client.account
        return {"service": account.api_url, "region": account.target or "the account's own"}

    # --- life -------------------------------------------------------------------------------------

    async def create(self, spec: BoxSpec) -> VendorBox:
        options = options_of(spec)
        deadline = asyncio.get_running_loop().time() + options.create_timeout
        try:
            made = await self._client.ask(
                "create a box",
                lambda api: api.create_sandbox(request_of(spec, self._client.account.target)),
                seconds=options.create_timeout,
            )
        except Conflict as error:
            if error.is_change:
                raise
            raise NameTaken(str(error)) from error
        box = self._seen(made)
        if box is None:
            raise VendorBusy("Daytona has removed the new box again, perhaps for want of capacity")
        return await self._settled(box, ("running", "failed"), deadline)

    async def find(self, spec: BoxSpec) -> VendorBox | None:
        return await self.look(name_of(spec))

    async def look(self, box_id: str) -> VendorBox | None:
        try:
            found = await self._client.ask(
                f"describe the box {box_id}", lambda api: api.get_sandbox(box_id)
            )
        except NoSuchBox:
            return None
        return self._seen(found)

    async def wake(self, box_id: str) -> None:
        try:
            started = await self._client.ask(
                f"start the box {box_id}", lambda api: api.start_sandbox(box_id)
            )
        except (Conflict, DaytonaRefused):
            if await self._state(box_id) == "running":
                return
            raise
        seconds = start_s_of(started.labels, self._change_s)
        await self._reached(self._seen(started), box_id, "start", seconds, "running")

    async def pause(self, box_id: str) -> None:
        try:
            paused = await self._client.ask(
                f"pause the box {box_id}", lambda api: api.pause_sandbox(box_id)
            )
        except (Conflict, DaytonaRefused, NoSuchBox) as error:
            if error.data.get("status") in _NO_PAUSE:
                raise CannotPause(str(error)) from error
            if await self._state(box_id) in ("paused", "stopped"):
                return
            if isinstance(error, NoSuchBox):  # an engine without this call
                raise CannotPause(str(error)) from error
            raise
        await self._reached(
            self._seen(paused), box_id, "pause", self._change_s, "paused", "stopped"
        )

    async def stop(self, box_id: str) -> None:
        await self._leave_terminals(box_id)
        try:
            stopped = await self._client.ask(
                f"stop the box {box_id}", lambda api: api.stop_sandbox(box_id, force=False)
            )
        except (Conflict, DaytonaRefused):
            if await self._state(box_id) == "stopped":
                return
            raise
        await self._reached(self._seen(stopped), box_id, "stop", self._change_s, "stopped")

    async def delete(self, box_id: str) -> None:
        await self._leave_terminals(box_id)
        try:
            await self._client.ask(
                f"delete the box {box_id}", lambda api: api.delete_sandbox(box_id)
            )
        except NoSuchBox:
            pass
        except Conflict:
            if await self.look(box_id) is not None:
                raise
        self._places.pop(box_id, None)

    async def list(self, owner: str) -> list[VendorBox]:
        wanted = json.dumps({names.OWNER: owner})
        boxes: list[VendorBox] = []
        cursor: str | None = None
        while True:
            page = await self._client.ask(
                "list its boxes",
                functools.partial(_page, labels=wanted, cursor=cursor),
            )
            boxes += [box for item in page.items if (box := self._seen(item)) is not None]
            cursor = page.next_cursor or None
            if cursor is None:
                return boxes

    async def keep(self, box_id: str) -> None:
        await self._client.ask(
            f"keep the box {box_id} alive", lambda api: api.update_last_activity(box_id)
        )

    async def address(self, box_id: str, port: int, options: dict[str, object]) -> PortAddress:
        seconds = read(options).url_ttl_s
        signed = await self._client.ask(
            f"give an address to port {port} of the box {box_id}",
            lambda api: api.get_signed_port_preview_url(box_id, port, expires_in_seconds=seconds),
        )
        url = urlsplit(signed.url)
        if not url.hostname:
            raise PortUnavailable(f"Daytona has no address for port {port} of the box {box_id}")
        tls = url.scheme == "https"
        return PortAddress(url.hostname, url.port or (443 if tls else 80), tls, url.query)

    async def make_root(self, box_id: str, root: str, owner: str) -> None:
        """The vendor makes all calls as the user of the box."""
        raise no_root(root)

    async def close(self) -> None:
        """Terminals that are open are closed, so that no shell is left behind in a box."""
        await asyncio.gather(*(terminal.close() for terminal in list(self._terminals)))
        await self._client.close()

    # --- inside a box -----------------------------------------------------------------------------

    async def execute(
        self, box_id: str, command: str, *, timeout_s: float, as_root: bool = False
    ) -> str:
        del as_root  # all of the vendor's calls have the rights of the box's user
        seconds = max(1, math.ceil(timeout_s))
        answer = await self._in_box(
            box_id,
            lambda place: self._client.run(
                f"run a command in the box {box_id}",
                place,
                lambda api: api.execute_command(_request(command, seconds)),
                seconds=seconds + min(_MARGIN_S, self._client.call_s),
            ),
        )
        return answer.result

    async def terminal(self, box_id: str, *, as_root: bool = False) -> DaytonaTerminal:
        del as_root
        try:
            return await self._in_box(box_id, lambda place: self._terminal(box_id, place))
        except ProviderError as error:
            refused = error.__cause__ if isinstance(error, VendorBusy) else error
            if getattr(refused, "data", {}).get("status") not in _NO_TERMINALS:
                raise
            # a box that is just up answers like that, too, and to all calls
            await self.execute(box_id, "true", timeout_s=self._client.call_s)
            raise AgentFailed(f"the engine has no terminals: {refused}") from error

    async def _terminal(self, box_id: str, place: str) -> DaytonaTerminal:
        doing = f"open a terminal in the box {box_id}"
        session = f"sandstream-{secrets.token_hex(8)}"
        query = urlencode({"id": session, "cols": 80, "rows": 24})
        socket = await self._client.websocket(
            doing, f"{place}/process/pty/create-connect?{query}", PROTOCOLS
        )

        async def kill() -> None:
            with contextlib.suppress(NoSuchBox, BoxAsleep):  # it has ended, or its box has
                await self._client.run(
                    f"end a terminal of the box {box_id}",
                    place,
                    lambda api: api.delete_pty_session(session),
                    seconds=min(KILL_S, self._client.call_s),
                )

        terminal = DaytonaTerminal(box_id, socket, kill)
        try:
            await within(f"asked Daytona to {doing}", self._client.call_s, terminal.opened())
        except BaseException:
            await terminal.close()
            raise
        self._terminals.add(terminal)
        return terminal

    async def _leave_terminals(self, box_id: str) -> None:
        """They end with the processes of the box, so no call is needed for each of them."""
        ours = [terminal for terminal in self._terminals if terminal.box_id == box_id]
        await asyncio.gather(*(terminal.leave() for terminal in ours))

    async def _in_box(self, box_id: str, work: Callable[[str], Awaitable[T]]) -> T:
        """Do something in a box. The daemon's refusals do not tell a sleeping box from one that is
        gone: only then the vendor is asked.
        """
        place = self._places.get(box_id)
        if place is None:
            box = await self.look(box_id)
            place = self._places.get(box_id)
            if box is None or place is None:
                raise NoSuchBox(f"Daytona has no box {box_id}")
        try:
            return await work(place)
        except (BoxAsleep, NoSuchBox, VendorRefused, DaytonaRefused) as error:
            self._places.pop(box_id, None)
            raise await self._meaning(box_id, error) from error

    async def _meaning(self, box_id: str, error: ProviderError) -> ProviderError:
        box = await self.look(box_id)
        if box is None:
            return NoSuchBox(f"Daytona has no box {box_id} any more")
        if box.state != "running":
            return BoxAsleep(f"the box {box_id} does not run: it is {box.state}")
        if isinstance(error, DaytonaRefused | VendorRefused) and error.data.get("said"):
            return error
        return VendorBusy(f"the box {box_id} runs, but cannot be reached yet: {error}")

    # --- states -----------------------------------------------------------------------------------

    def _seen(self, found: Sandbox | SandboxListItem) -> VendorBox | None:
        """What an answer says of a box. None: it is gone, or going."""
        if is_gone(found):
            self._places.pop(found.id, None)
            return None
        if len(self._places) >= _MOST_PLACES:
            self._places.clear()
        if found.toolbox_proxy_url:
            self._places[found.id] = f"{found.toolbox_proxy_url.rstrip('/')}/{found.id}"
        if found.auto_stop_interval:
            self.keep_s = min(self.keep_s, found.auto_stop_interval * 60 / 3)
        return box_of(found)

    async def _state(self, box_id: str) -> State:
        box = await self.look(box_id)
        if box is None:
            raise NoSuchBox(f"Daytona has no box {box_id} any more")
        return box.state

    async def _reached(
        self, box: VendorBox | None, box_id: str, doing: str, seconds: float, *wanted: State
    ) -> None:
        """Wait for the end of a change."""
        deadline = asyncio.get_running_loop().time() + seconds
        if box is not None:
            box = await self._settled(box, (*wanted, "failed"), deadline)
        if box is None:
            raise NoSuchBox(f"Daytona has no box {box_id} any more")
        if box.state == "failed":
            raise ProviderError(f"Daytona cannot {doing} the box {box_id}: {box.reason}")
        if box.state not in wanted:
            raise VendorSilent(
                f"Daytona was asked to {doing} the box {box_id}, and has not within {seconds:.0f} s"
            )

    async def _settled(
        self, box: VendorBox, wanted: tuple[State, ...], deadline: float
    ) -> VendorBox:
        """The box when its state is one of these, or as it is at the deadline.

        Raises:
            NoSuchBox: it is gone.
        """
        loop = asyncio.get_running_loop()
        pause_s = _FIRST_LOOK_S
        while box.state not in wanted and loop.time() + pause_s < deadline:
            await asyncio.sleep(pause_s)
            pause_s = min(_LAST_LOOK_S, pause_s * _LONGER)
            try:
                now = await self.look(box.id)
            except VendorBusy as error:
                pause_s = max(pause_s, error.retry_after_s or 0.0)
                continue
            except VendorSilent:
                continue
            if now is None:
                raise NoSuchBox(f"Daytona has no box {box.id} any more")
            box = now
        return box


async def _page(api: SandboxApi, *, labels: str, cursor: str | None) -> ListSandboxesResponse:
    return await api.list_sandboxes(labels=labels, limit=_PAGE, cursor=cursor)


def _request(command: str, seconds: int) -> ExecuteRequest:
    """The daemon gives a line to some shell as its input, and merges what it says. So the command
    gets a shell and an input of its own, and only its output is kept.
    """
    from daytona_toolbox_api_client_async import ExecuteRequest

    line = f"/bin/sh -c {shlex.quote(command)} </dev/null 2>/dev/null"
    return ExecuteRequest(command=line, timeout=seconds)
