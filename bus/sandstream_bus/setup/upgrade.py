"""Upgrades an installation of format 1: its log gets stricter settings; its messages do not change.

JetStream does not allow schedules and TTL to be switched off on an existing stream. But a mirror
has every message at its own sequence, with its time and headers, and becomes an ordinary stream
when its configuration no longer names a source. To keep its name, the log is copied twice:

1. ``<STEM>_LOG-COPY`` mirrors the log. It remembers the log's configuration.
2. The log gets only an unused subject, so that nothing can be written to it.
3. When the copy is complete, it also gets the positions of the log's consumers.
   The new streams are created. ``<STEM>_REQUESTS`` gets the tasks that were not taken yet.
4. The log is deleted, and recreated as a mirror of the copy, with the new configuration.
5. When it is complete, its consumers get their positions, and the timers are armed again.
   One update gives it its subjects and the mark of the new format.
6. The copy is deleted.

Every step checks the current state and does what is missing. If a process is killed at any point,
the next one continues; until then the log cannot be used. The log or the copy is deleted only if
the other one has all messages.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from sandstream_bus.counts import numbered
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import StoreFull, TopologyError
from sandstream_bus.logs.presence import Presence
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.retention import bytes_text, retention_of
from sandstream_bus.nats.topology import FORMAT, FORMAT_KEY, UPGRADE_KEY, Topology
from sandstream_bus.setup import upgrade_carry as carry
from sandstream_bus.setup.installation import create_stream, refused
from sandstream_bus.setup.lock import SetupLock
from sandstream_bus.setup.upgrade_state import (
    COPIED,
    COPYING,
    Note,
    fence_of,
    final_config,
    is_fenced,
    is_mirror,
    is_old,
    mark_of,
    note_of,
)

__all__ = ["upgrade"]

logger = logging.getLogger(__name__)

Tell = Callable[[str], None]

_LOOK_AGAIN_S = 0.05
_TELL_S = 5.0
_PATIENCE_S = 60.0
"""How long a copy may make no progress."""
_NO_LIMITS = {"max_age": 0, "max_bytes": -1, "max_msgs": -1, "discard": "old"}
"""No limits for a copy: they could drop or refuse messages. They are set at the end."""


def warn(text: str) -> None:
    """Logs the progress of an upgrade, for callers without a better output."""
    logger.warning("%s", text)


async def upgrade(connection: Connection, topology: Topology, tell: Tell = warn) -> None:
    """Upgrade the installation, or continue an upgrade; has no effect if none is needed.

    Raises:
        TopologyError: Actors of the older release are running, or the server refuses something.
        StoreFull: There is no space for a copy.
    """
    async with SetupLock(connection, topology) as lock:
        await _Upgrade(connection, topology, lock, tell).run()


class _Upgrade:
    def __init__(
        self, connection: Connection, topology: Topology, lock: SetupLock, tell: Tell
    ) -> None:
        self._connection = connection
        self._topology = topology
        self._lock = lock
        self._tell = tell

    async def run(self) -> None:
        log = await self._info(self._topology.log)
        copy = await self._info(self._topology.log_copy)
        if log is None and copy is None:
            return
        if log is not None and is_old(log["config"]):
            await self._copy_away(log, copy)
            log = None
        if log is None or mark_of(log["config"]) == COPYING:
            await self._copy_back(log)
        await self._clean_up()

    # --- from the log to the copy ----------------------------------------------------------------

    async def _copy_away(self, log: dict[str, Any], copy: dict[str, Any] | None) -> None:
        """Steps 1 to 3, and the deletion of the old log."""
        topology = self._topology
        _check_same(topology, log, copy)
        await self._refuse_company()
        note = await self._begin_copy(log, copy)
        crashpoint("upgrade.copy_begun")
        if not is_fenced(topology, log["config"]):
            fenced = log["config"] | {"subjects": [fence_of(topology)]}
            await self._ask(f"STREAM.UPDATE.{topology.log}", fenced)
        crashpoint("upgrade.fenced")
        await self._fill_copy()
        crashpoint("upgrade.copied")
        await carry.note_places(self._connection, topology)
        crashpoint("upgrade.noted_places")
        await self._make_streams(note)
        crashpoint("upgrade.made_streams")
        await self._refuse_company()
        await self._lock.check()
        await self._fill_copy()  # a timer may have fired since
        await self._ask(f"STREAM.DELETE.{topology.log}", {})
        crashpoint("upgrade.deleted_log")

    async def _refuse_company(self) -> None:
        """Refuse while actors of the older release are running: they would work beside the new ones
        and fail runs, because they can no longer arm timers.
        """
        presence = Presence(self._connection, self._topology.subjects)
        found = await self._topology.consumers_of(self._connection, self._topology.log)
        names = [str(it["name"]) for it in found]
        served = await asyncio.gather(*(presence.is_served(it) for it in names))
        working = [name for name, is_served in zip(names, served, strict=True) if is_served]
        if working:
            raise TopologyError(
                f"actors and programs of the older release are at work ({', '.join(working)}). "
                "They cannot use the upgraded log: stop all of them, then upgrade, then start "
                "those of this release"
            )

    async def _begin_copy(self, log: dict[str, Any], copy: dict[str, Any] | None) -> Note:
        topology = self._topology
        if copy is not None and is_fenced(topology, log["config"]):
            return note_of(copy)
        note = Note(created=log["created"], config=log["config"])
        final_config(topology, note)  # raises if the log cannot be upgraded
        if copy is None:
            await self._check_room(log)
        config = {
            **_like(log["config"], topology.log_copy),
            "mirror": {"name": topology.log},
            "metadata": {UPGRADE_KEY: msgspec.json.encode(note).decode()},
        }
        if copy is not None:  # the operator has changed the log meanwhile
            await self._ask(f"STREAM.UPDATE.{topology.log_copy}", copy["config"] | config)
            return note
        self._tell(
            f"upgrading {topology.log} to format {FORMAT}: it is copied twice; "
            "if this is interrupted, `sandstream setup` continues it"
        )
        await self._ask(f"STREAM.CREATE.{topology.log_copy}", config)
        return note

    async def _check_room(self, log: dict[str, Any]) -> None:
        """A copy needs as much space as the log. Only the account's limits can be checked here."""
        account = await self._topology.ask(self._connection, "INFO", {})
        assert account is not None
        replicas = int(log["config"].get("num_replicas", 1))
        tier = (account.get("tiers") or {}).get(f"R{replicas}")
        limits = tier or account
        need = int(log["state"]["bytes"]) * (1 if tier else replicas)
        most = int((limits.get("limits") or {}).get("max_storage", -1))
        free = most - int(limits.get("storage", 0))
        if most > 0 and need > free:
            raise StoreFull(
                f"the upgrade copies {self._topology.log} and needs {bytes_text(need)} for as long "
                f"as it takes; the account may store {bytes_text(most)} and has "
                f"{bytes_text(max(free, 1))} left. Raise its limit, or keep events for fewer days"
            )

    async def _fill_copy(self) -> None:
        """Return when the copy is complete."""
        topology = self._topology
        progress = _Progress(topology.log_copy, self._tell)
        while True:
            log, copy = await self._known(topology.log), await self._known(topology.log_copy)
            has, all_of_it = copy["state"], log["state"]
            if _is_settled(copy) and _has_all(has, all_of_it):
                return
            if has["last_seq"] < all_of_it["last_seq"]:
                await self._mark_end(all_of_it["last_seq"])
            await progress.wait(has["last_seq"], all_of_it["last_seq"], copy)

    async def _mark_end(self, last: int) -> None:
        """A mirror does not see sequences of expired messages: if the newest one has expired, write
        one more message. The log is fenced, so no consumer reads it.
        """
        call = f"STREAM.MSG.GET.{self._topology.log}"
        if await self._topology.ask(self._connection, call, {"seq": last}, missing_ok=True) is None:
            await self._connection.publish(
                fence_of(self._topology), b"", msg_id=f"upgrade:end:{last}"
            )

    # --- the new streams -------------------------------------------------------------------------

    async def _make_streams(self, note: Note) -> None:
        topology = self._topology
        topology.retention = retention_of(note.config)
        wanted = {it["name"]: it for it in topology.wanted()}
        requests = await self._info(topology.requests)
        if requests is None:
            begin = await carry.requests_config(self._connection, topology)
            await create_stream(self._connection, topology, begin)
            crashpoint("upgrade.requests_begun")
            requests = await self._known(topology.requests)
        if is_mirror(requests["config"]):
            last = await carry.last_task(self._connection, topology)
            assert last is not None
            progress = _Progress(topology.requests, self._tell)
            while requests["state"]["last_seq"] < last.sequence or not _is_settled(requests):
                await progress.wait(requests["state"]["last_seq"], last.sequence, requests)
                requests = await self._known(topology.requests)
            await self._promote(requests["config"], wanted[topology.requests])
        await create_stream(self._connection, topology, wanted[topology.timers])

    # --- from the copy to the log ----------------------------------------------------------------

    async def _copy_back(self, log: dict[str, Any] | None) -> None:
        """Steps 4 and 5: afterwards the log has its name again and is ready."""
        topology = self._topology
        copy = await self._info(topology.log_copy)
        if copy is None:
            raise TopologyError(
                f"{topology.log_copy} is gone, and {topology.log} has not got all of it yet: "
                "restore the installation from a backup"
            )
        note = note_of(copy)
        if is_mirror(copy["config"]):
            unused = {"subjects": topology.subjects.matching("upgrade.copy")}
            await self._promote(copy["config"], unused)
            copy = await self._known(topology.log_copy)
        crashpoint("upgrade.promoted_copy")
        await self._make_streams(note)
        final = final_config(topology, note)
        marks = final["metadata"] | {FORMAT_KEY: "1", UPGRADE_KEY: COPYING}
        if log is None:
            config = {
                **_like(final, topology.log),
                "mirror": {"name": topology.log_copy},
                "metadata": marks,
            }
            log = await self._ask(f"STREAM.CREATE.{topology.log}", config)
        crashpoint("upgrade.second_copy_begun")
        if is_mirror(log["config"]):
            await self._fill_log(copy["state"])
            crashpoint("upgrade.second_copied")
            log = await self._known(topology.log)
            await self._promote(log["config"], {"subjects": [fence_of(topology)]})
        crashpoint("upgrade.promoted_log")
        await carry.restore_places(self._connection, topology)
        crashpoint("upgrade.restored_places")
        await carry.rearm(self._connection, topology)
        await self._lock.check()
        crashpoint("upgrade.before_final")
        log = await self._known(topology.log)
        await self._ask(f"STREAM.UPDATE.{topology.log}", _without_mirror(log["config"]) | final)
        crashpoint("upgrade.final")

    async def _fill_log(self, all_of_it: dict[str, Any]) -> None:
        progress = _Progress(self._topology.log, self._tell)
        while True:
            log = await self._known(self._topology.log)
            if _is_settled(log) and _is_same(log["state"], all_of_it):
                return
            await progress.wait(log["state"]["last_seq"], all_of_it["last_seq"], log)

    # --- the end ---------------------------------------------------------------------------------

    async def _clean_up(self) -> None:
        """Step 6. The mark is removed last: it says that a copy may exist."""
        topology = self._topology
        log = await self._known(topology.log)
        if mark_of(log["config"]) != COPIED:
            return
        copy = await self._info(topology.log_copy)
        if copy is not None:
            if int(log["state"]["last_seq"]) < int(copy["state"]["last_seq"]):
                raise TopologyError(
                    f"{topology.log} ends before {topology.log_copy}: nothing is deleted. Restore "
                    "the installation from a backup"
                )
            await self._lock.check()
            await self._ask(f"STREAM.DELETE.{topology.log_copy}", {})
        crashpoint("upgrade.deleted_copy")
        marks = {key: it for key, it in log["config"]["metadata"].items() if key != UPGRADE_KEY}
        await self._ask(f"STREAM.UPDATE.{topology.log}", log["config"] | {"metadata": marks})

    # --- requests --------------------------------------------------------------------------------

    async def _promote(self, mirror: dict[str, Any], fields: dict[str, Any]) -> None:
        """Turn a mirror into an ordinary stream."""
        name = mirror["name"]
        await self._ask(f"STREAM.UPDATE.{name}", _without_mirror(mirror) | fields)

    async def _info(self, stream: str) -> dict[str, Any] | None:
        call = f"STREAM.INFO.{stream}"
        return await self._topology.ask(self._connection, call, {}, missing_ok=True)

    async def _known(self, stream: str) -> dict[str, Any]:
        return await self._topology.stream_info(self._connection, stream)

    async def _ask(self, call: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = await self._topology.ask(
                self._connection, call, body, missing_ok=call.startswith("STREAM.DELETE.")
            )
        except (StoreFull, TopologyError) as error:
            if "max_bytes" in body and "num_replicas" in body:
                raise refused(error, body) from error
            raise
        return answer or {}


class _Progress:
    """Waits for a copy, reports its progress, and gives up if there is none."""

    def __init__(self, stream: str, tell: Tell) -> None:
        self._stream = stream
        self._tell = tell
        self._told_at = self._moved_at = time.monotonic()
        self._last = -1

    async def wait(self, done: int, total: int, info: dict[str, Any]) -> None:
        now = time.monotonic()
        if done != self._last:
            self._last, self._moved_at = done, now
        if now - self._told_at > _TELL_S:
            self._told_at = now
            self._tell(f"{self._stream} is at message {done:,} of {total:,}")
        if now - self._moved_at > _PATIENCE_S:
            why = ((info.get("mirror") or {}).get("error") or {}).get("description", "")
            raise TopologyError(
                f"{self._stream} has stopped at message {done} of {total}"
                f"{f' ({why})' if why else ''}. Check the disk space and the replicas of the "
                "servers. Nothing is lost; `sandstream setup` continues from here"
            )
        await asyncio.sleep(_LOOK_AGAIN_S)


def _check_same(topology: Topology, log: dict[str, Any], copy: dict[str, Any] | None) -> None:
    """Refuse to change a log that is not the one from which the copy was made."""
    if copy is None:
        return
    if note_of(copy).created != log["created"] or not is_mirror(copy["config"]):
        raise TopologyError(
            f"{topology.log} was created during an upgrade, when all messages were in "
            f"{topology.log_copy}. If the "
            f"{numbered(log['state']['messages'], 'message')} of the new one can be lost, "
            f"delete it (`nats stream rm {topology.log}`) and run `sandstream setup` again"
        )


def _like(config: dict[str, Any], name: str) -> dict[str, Any]:
    """A mirror with the storage settings of a log, and without limits."""
    chosen = ("storage", "num_replicas", "compression", "placement", "max_consumers")
    kept = {key: config[key] for key in chosen if config.get(key) is not None}
    return {**kept, **_NO_LIMITS, "name": name, "allow_direct": True}


def _without_mirror(config: dict[str, Any]) -> dict[str, Any]:
    return {key: it for key, it in config.items() if key not in ("mirror", "mirror_direct")}


def _has_all(copy: dict[str, Any], log: dict[str, Any]) -> bool:
    """The copy drops nothing; the log may: by age, or after a timer has fired."""
    has_end = int(copy["last_seq"]) >= int(log["last_seq"])
    has_start = int(copy["first_seq"]) <= int(log["first_seq"])
    return has_start and has_end and int(copy["messages"]) >= int(log["messages"])


def _is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[it] == other[it] for it in ("first_seq", "last_seq", "messages", "bytes"))


def _is_settled(info: dict[str, Any]) -> bool:
    """Does the stream have a leader, and are all of its replicas up to date?"""
    cluster = info.get("cluster") or {}
    if int(info["config"].get("num_replicas", 1)) == 1:
        return True
    return bool(cluster.get("leader")) and all(
        it.get("current") and not it.get("offline") and not it.get("lag")
        for it in cluster.get("replicas") or []
    )
