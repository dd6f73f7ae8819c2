"""Ends open runs before the log loses their beginning.

The log drops events by age. A run that is still open by then (it waits for a person, for a rate
limit, for its turn in a conversation, or for a process that never came back) would lose its first
events: it would be listed, but could be neither answered nor continued. So each harness sweeps the
index of open runs, oldest first, and ends such runs a margin earlier, with a reason. Runs whose
beginning is already lost (the limit was lowered, the log was full, no harness ran in time) are
ended in the same way, and entries of runs that no longer exist are removed.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sandstream_bus.bus import Bus
from sandstream_bus.counts import numbered
from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.errors import BusError, SandstreamError
from sandstream_bus.logs.open_runs import OpenEntry
from sandstream_bus.nats.fresh import fresh_last_each
from sandstream_bus.wire.messages import ErrorInfo
from sandstream_bus.wire.subjects import RunId

from sandstream_actors.run.forced_ends import end_of, follow_end, read_for_end, write_end

logger = logging.getLogger(__name__)

EXPIRED = "run_expired"
"""The error code of a run that was ended because of its age."""
_MARGIN = 0.1
_MOST_MARGIN_S = 86_400.0
_LONGEST_PAUSE_S = 600.0
_SHORTEST_PAUSE_S = 0.25
_FIRST_PAUSE_S = 15.0
_AFTER_RECONNECT_S = 5.0
_YOUNG_S = 60.0


class Horizon(NamedTuple):
    """How far back the log goes, by its own settings and clock."""

    max_age_s: float
    """0: the log has no age limit."""
    oldest: datetime
    """When the oldest event was stored."""
    now: datetime

    @property
    def margin_s(self) -> float:
        """How long before its first event is dropped a run is ended."""
        return min(self.max_age_s * _MARGIN, _MOST_MARGIN_S)

    @property
    def limit(self) -> datetime:
        """Runs that started before this time are ended."""
        if not self.max_age_s:
            return self.oldest
        return max(self.oldest, self.now - timedelta(seconds=self.max_age_s - self.margin_s))

    @property
    def pause_s(self) -> float:
        """The time until the next sweep is useful."""
        pause_s = self.margin_s / 4 if self.max_age_s else _LONGEST_PAUSE_S
        return min(max(pause_s, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)


class Expiry:
    """Sweeps from time to time, as long as a harness lives."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._reconnected = asyncio.Event()

    async def run(self) -> None:
        """Sweep until cancelled."""
        forget = self._bus.connection.on_reconnect(self._on_reconnect)
        try:
            await self._sweep_on()
        finally:
            forget()

    async def _on_reconnect(self) -> None:
        self._reconnected.set()

    async def _sweep_on(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                horizon = await read_horizon(self._bus)
                await self._pause(min(pause_s, horizon.pause_s))
                await end_expiring(self._bus)
                await remove_ended(self._bus)
                pause_s = horizon.pause_s
            except BusError as error:  # the harness's own work reports this error too
                logger.warning("cannot look for expiring runs", extra={"why": str(error)})
                await asyncio.sleep(_FIRST_PAUSE_S)
            except Exception:  # a bug here must not end the sweeps
                logger.exception("looking for expiring runs failed")
                await asyncio.sleep(_FIRST_PAUSE_S)

    async def _pause(self, pause_s: float) -> None:
        """Wait; only briefly after a reconnect. A killed server may have forgotten that it removed
        entries, and shows them again once the tombstones have expired.
        """
        try:
            async with asyncio.timeout(pause_s):
                await self._reconnected.wait()
        except TimeoutError:
            return
        self._reconnected.clear()
        await asyncio.sleep(_AFTER_RECONNECT_S)


async def read_horizon(bus: Bus, max_age_s: float | None = None) -> Horizon:
    """How far back the log goes; ``max_age_s`` replaces its own age limit."""
    info = await bus.topology.stream_info(bus.connection, bus.topology.log)
    now = stored_at(info["ts"])
    own_s = info["config"].get("max_age", 0) / 1e9
    age_s = own_s if max_age_s is None else max_age_s
    if info["state"]["messages"]:
        return Horizon(age_s, stored_at(info["state"]["first_ts"]), now)
    # an empty log: an entry that is just being written precedes the first event of its run
    return Horizon(age_s, now - timedelta(seconds=min(age_s or _YOUNG_S, _YOUNG_S)), now)


async def end_expiring(bus: Bus, *, max_age_s: float | None = None) -> int:
    """End the open runs whose first event the log has dropped or will drop soon; return their
    number.

    ``max_age_s``: use this age limit. A caller that lowers the limit calls this first, so that no
    run loses only a part of its events.
    """
    horizon = await read_horizon(bus, max_age_s)
    entries = [it for it in await bus.open_runs.all() if stored_at(it.since) < horizon.limit]
    ended = 0
    for entry in sorted(entries, key=lambda it: it.since):  # a parent before its children
        try:
            ended += await _end(bus, entry, horizon)
        except SandstreamError as error:  # one failure must not block the other runs
            extra = {"run_id": entry.run, "why": str(error)}
            logger.error("an expiring run cannot be ended", extra=extra)
    return ended


async def remove_ended(bus: Bus) -> int:
    """Remove entries of ended runs: the process that ended the run died right then, or a slow
    replica wrote to the index afterwards. Return how many entries may be left.
    """
    runs = {bus.subjects.done(it.run): it.run for it in await bus.open_runs.all()}
    # an open run has no end, so this reads nothing for almost all of them
    ends = await fresh_last_each(bus.connection, bus.topology.log, list(runs))
    for end in ends:
        run = runs[end.subject]
        try:
            await bus.work_log.leave_if_over(run)  # unless it was reopened
        except SandstreamError as error:  # one failure must not block the others
            extra = {"run_id": run, "why": str(error)}
            logger.error("an ended run cannot be removed from the index", extra=extra)
    return len(ends)


async def _end(bus: Bus, entry: OpenEntry, horizon: Horizon) -> bool:
    error = ErrorInfo(code=EXPIRED, message=_reason(horizon))
    while True:
        state = await read_for_end(bus, entry.run)
        if state is None or (state.done is None and state.last_seq == 0):
            await bus.open_runs.leave(entry.run)  # it has ended, or its events are gone
            return False
        if state.done is not None:
            await follow_end(bus, state)  # the process that ended it may have died right after
            return False
        if await _is_young(bus, entry.run, horizon):
            return False
        crashpoint("expiry.before_end")
        done = end_of(state, error, entry.open.agent)
        if not await write_end(bus, state, done, f"{entry.run}:expired{state.last_seq}"):
            continue
        crashpoint("expiry.after_end")
        logger.warning("ended an expiring run", extra={"run_id": entry.run, "since": entry.since})
        await follow_end(bus, state)
        return True


async def _is_young(bus: Bus, run: RunId, horizon: Horizon) -> bool:
    """Is the run's first event in the log, and far from its age limit? Its index entry may be
    older: both are written at once, to two streams.
    """
    first = await bus.log.read_subject(bus.subjects.start(run, "*"), limit=1, skip_unknown=True)
    if not first:
        return False
    if not horizon.max_age_s:
        return True
    age_s = (horizon.now - stored_at(first[0].stored.time)).total_seconds()
    return age_s < horizon.max_age_s - horizon.margin_s


def _reason(horizon: Horizon) -> str:
    if not horizon.max_age_s:
        return (
            "the log has dropped the run's first event (its size limit): the run was ended so that "
            "no half of it remains. Raise the limit with `sandstream setup --max-bytes`"
        )
    days = horizon.max_age_s / 86_400
    age = numbered(days, "day") if days >= 1 else f"{horizon.max_age_s:g} s"
    return (
        f"the run's first event reaches the log's age limit of {age}: the run was ended so that no "
        "half of it remains. Raise the limit with `sandstream setup --max-age-days`"
    )


def stored_at(text: str) -> datetime:
    """A time of the server's, RFC 3339 with nanoseconds."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    parsed = datetime.fromisoformat(whole).replace(tzinfo=UTC)
    return parsed + timedelta(microseconds=int((fraction + "000000")[:6]))
