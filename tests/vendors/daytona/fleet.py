"""All boxes of the account and the changes of their states."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from vendors.box_files import BoxFiles
from vendors.daytona.daemon.daemon import Daemon
from vendors.daytona.events import Events
from vendors.daytona.refusals import Refusal
from vendors.daytona.sandbox import Sandbox
from vendors.daytona.settings import Settings
from vendors.machine import Machine

IN_PROGRESS = "Sandbox state change in progress"
UPGRADE = (
    "To increase concurrency limits, upgrade your organization's Tier by visiting "
    "https://app.daytona.io/dashboard/limits."
)


class Fleet:
    """Keeps every box until it is destroyed, and the search index that lists are read from."""

    def __init__(self, directory: Path, settings: Settings, events: Events) -> None:
        self.directory = directory
        self.settings = settings
        self.toolbox_url = ""
        self.boxes: dict[str, Sandbox] = {}
        self.destroyed: set[str] = set()
        self.index: dict[str, dict[str, Any]] = {}
        self.on_removed: list[Callable[[Sandbox], Awaitable[None]]] = []
        """Called with every box that is destroyed."""
        self._events = events
        self._destructions: dict[str, asyncio.Task[None]] = {}
        self._changes = 0
        self._indexed: dict[str, int] = {}
        """The number of the change that the index knows, by box."""
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, id_or_name: str) -> Sandbox | None:
        """The box with this id, or else with this name; a box that is being destroyed has none."""
        if box := self.boxes.get(id_or_name):
            return box
        for box in self.boxes.values():
            if box.name == id_or_name and box.state != "destroying":
                return box
        return None

    def get(self, id_or_name: str) -> Sandbox:
        """The box with this id or name.

        Raises:
            Refusal: there is none (404).
        """
        if box := self.find(id_or_name):
            return box
        raise Refusal(404, f"Sandbox with ID or name {id_or_name} not found")

    def check_limits(self) -> None:
        """Refuse a further box if the organization may not have one."""
        if self.settings.suspended is not None:
            raise Refusal(403, f"Organization is suspended: {self.settings.suspended}")
        limit = self.settings.max_boxes
        if limit is not None and len(self.boxes) >= limit:
            raise Refusal(400, f"Total CPU limit exceeded. Maximum allowed: {limit}.\n{UPGRADE}")

    def check_name(self, name: str) -> None:
        """Refuse a name that is in use."""
        if any(box.name == name and box.state != "destroying" for box in self.boxes.values()):
            raise Refusal(409, f"Sandbox with name {name} already exists")

    def add(self, box: Sandbox) -> None:
        """Take a new box in; its name is reserved from here on."""
        self.boxes[box.id] = box
        self._index(box.id)
        self._events.publish("sandbox.created", box.described(self.toolbox_url))

    async def create(self, box: Sandbox, source: Path | None) -> None:
        """Start a new box, from a copy of these files if given."""

        async def work() -> None:
            if source is not None:
                await asyncio.to_thread(BoxFiles(source, home="", user="").copy_to, box.directory)
            await self._boot(box)

        await self.change(box, "creating", "started", self.settings.start_delay_s, work)

    async def build(self, box: Sandbox, delay_s: float) -> None:
        """Start a new box whose image has to be built."""
        await self.change(box, "building_snapshot", "started", delay_s, lambda: self._boot(box))

    async def start(self, box: Sandbox) -> None:
        """Start a stopped box, or resume a paused one."""
        if box.state == "started":
            return
        if box.changing:
            raise Refusal(409, IN_PROGRESS)
        if box.state not in ("stopped", "archived", "paused"):
            raise Refusal(400, "Sandbox is not in valid state")
        if self.settings.suspended is not None:
            raise Refusal(403, f"Organization is suspended: {self.settings.suspended}")
        if box.state == "paused":
            await self.change(
                box, "resuming", "started", self.settings.start_delay_s, lambda: self._thaw(box)
            )
            return
        via = "restoring" if box.state == "archived" else "starting"
        await self.change(box, via, "started", self.settings.start_delay_s, lambda: self._boot(box))

    async def stop(self, box: Sandbox) -> None:
        """Kill every process of the box and keep its files; delete an ephemeral box."""
        if box.changing:
            raise Refusal(409, IN_PROGRESS)
        if box.state not in ("started", "paused"):
            raise Refusal(400, "Sandbox is not in a stoppable state")
        if box.ephemeral:
            await self.destroy(box)
            return
        await self.change(
            box, "stopping", "stopped", self.settings.stop_delay_s, lambda: self._halt(box)
        )

    async def pause(self, box: Sandbox) -> None:
        """Freeze every process of the box, if its class allows it."""
        if box.changing:
            raise Refusal(409, IN_PROGRESS)
        if box.state != "started":
            raise Refusal(400, "Sandbox must be in started state to pause")
        if not box.pausable:
            raise Refusal(422, "Pausing is not supported for this sandbox")
        assert box.machine is not None
        await self.change(box, "pausing", "paused", self.settings.stop_delay_s, box.machine.freeze)

    async def archive(self, box: Sandbox) -> None:
        if box.changing:
            raise Refusal(409, IN_PROGRESS)
        if box.state != "stopped":
            raise Refusal(400, "Sandbox is not stopped")
        await self.change(box, "archiving", "archived", self.settings.stop_delay_s, _nothing)

    async def delete(self, box: Sandbox) -> None:
        """Destroy the box, as its owner asks."""
        if box.changing and box.state != "pending_build":
            raise Refusal(409, IN_PROGRESS)
        if any(child.parent == box.id for child in self.boxes.values()):
            raise Refusal(
                400,
                "Cannot delete sandbox which has active fork children. "
                "The forks must be deleted first.",
            )
        await self.destroy(box)

    async def destroy(self, box: Sandbox) -> asyncio.Task[None]:
        """Destroy the box in any state. Its name is free at once, its id when the task ends."""
        if box.id in self._destructions:
            return self._destructions[box.id]

        async def work() -> None:
            for removed in self.on_removed:
                await removed(box)
            await self._halt(box)
            if box.machine is not None:
                await box.machine.remove()
            del self.boxes[box.id]
            self.destroyed.add(box.id)

        delay = self.settings.destroy_delay_s
        self.set_state(box, "destroying")
        task = self.spawn(self._arrive(box, "destroying", "destroyed", delay, work))
        self._destructions[box.id] = task
        return task

    async def change(
        self, box: Sandbox, via: str, to: str, delay_s: float, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Lead a box through a state to another. Without a delay it has arrived on return."""
        self.set_state(box, via)
        arriving = self._arrive(box, via, to, delay_s, work)
        if delay_s:
            self.spawn(arriving)
        else:
            await arriving

    async def _arrive(
        self, box: Sandbox, via: str, to: str, delay_s: float, work: Callable[[], Awaitable[None]]
    ) -> None:
        await asyncio.sleep(delay_s)
        if box.state != via:
            return  # overtaken, by its destruction
        try:
            await work()
        except Exception as error:
            if box.state == via:
                box.error_reason = str(error)
                self.set_state(box, "error")
            raise
        if box.state == via:
            self.set_state(box, to)
        elif box.machine is not None:  # destroyed while it was starting
            await self._halt(box)
            await box.machine.remove()

    def set_state(self, box: Sandbox, state: str) -> None:
        """Change the state and tell everyone."""
        old, box.state = box.state, state
        box.updated_at = time.time()
        if state in ("stopped", "paused"):
            box.stopped_at = time.time()
        if state == "started":
            box.touch()
        self._index(box.id)
        sandbox = box.described(self.toolbox_url)
        change = {"sandbox": sandbox, "oldState": old, "newState": state}
        self._events.publish("sandbox.state.updated", change)

    def changed(self, box: Sandbox) -> None:
        """The description of a box has changed."""
        box.updated_at = time.time()
        self._index(box.id)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run in the background, until the server ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """End every box. Their files stay."""
        for task in list(self._tasks):
            task.cancel()
        for box in list(self.boxes.values()):
            await self._halt(box)

    async def _boot(self, box: Sandbox) -> None:
        box.machine = await Machine.start(
            box.directory,
            home=box.home,
            user=box.user,
            extra_dirs=box.extra_dirs,
            python=box.python,
            sudo=box.sudo,
            hostname=box.id,
        )
        if box.lost_share:
            await asyncio.to_thread(box.machine.files.lose, box.lost_share)
            box.lost_share = 0.0
        box.daemon = Daemon(box, box.machine, self.settings)
        box.stopped_at = None

    async def _thaw(self, box: Sandbox) -> None:
        assert box.machine is not None
        if box.lost_share:
            await asyncio.to_thread(box.machine.files.lose, box.lost_share)
            box.lost_share = 0.0
        await box.machine.thaw()
        box.stopped_at = None

    async def _halt(self, box: Sandbox) -> None:
        daemon, box.daemon = box.daemon, None
        if daemon is not None:
            daemon.ended.set()  # before its processes end: clients see the loss, not the end
        if box.machine is not None:
            await box.machine.stop()
        if daemon is not None:
            await daemon.close()

    def _index(self, box_id: str) -> None:
        """Bring the search index up to date, after its lag."""
        self._changes += 1
        number = self._changes
        box = self.boxes.get(box_id)
        found = None if box is None else box.listed(self.toolbox_url)

        def write() -> None:
            if self._indexed.get(box_id, 0) > number:
                return  # the lag was shortened: a later change is there already
            self._indexed[box_id] = number
            if found is None:
                self.index.pop(box_id, None)
            else:
                self.index[box_id] = found

        if self.settings.list_lag_s:
            asyncio.get_running_loop().call_later(self.settings.list_lag_s, write)
        else:
            write()


async def _nothing() -> None:
    pass
