"""What an upgrade carries over besides the log's messages: the positions of its consumers, tasks
that were not taken yet, and timers that are not due.

Everything is read from the copy, which no longer changes. So all of this can be repeated after a
crash.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from sandstream_bus.crashpoints import crashpoint
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.direct import Stored
from sandstream_bus.nats.fresh import fresh_last, fresh_many
from sandstream_bus.nats.topology import UPGRADE_KEY, Topology
from sandstream_bus.wire import headers as h

_AT_ONCE = 64


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A durable consumer of the log, and its position."""

    config: dict[str, Any]
    done: int
    """Everything up to this sequence is acknowledged."""
    has_begun: bool

    @property
    def filters(self) -> list[str]:
        one = self.config.get("filter_subject")
        return [one] if one else list(self.config.get("filter_subjects") or [])


# --- the positions of consumers -------------------------------------------------------------------


async def note_places(connection: Connection, topology: Topology) -> None:
    """Note the position of each consumer of the log on the copy.

    A note is an unused consumer with the same name, and the position in its metadata. A stream can
    have any number of them, and its messages do not change.
    """
    for info in await topology.consumers_of(connection, topology.log):
        config = info["config"]
        if not config.get("durable_name"):
            continue  # not durable: its reader starts again
        is_acked = config.get("ack_policy") != "none"
        place = Place(
            config=config,
            done=int(info["ack_floor" if is_acked else "delivered"]["stream_seq"]),
            has_begun=int(info["delivered"]["consumer_seq"]) > 0,
        )
        note = {
            "durable_name": info["name"],
            "name": info["name"],
            "ack_policy": "explicit",
            "metadata": {UPGRADE_KEY: msgspec.json.encode(place).decode()},
        }
        call = f"CONSUMER.CREATE.{topology.log_copy}.{info['name']}"
        body = {"stream_name": topology.log_copy, "config": note}
        await topology.ask(connection, call, body)


async def noted_places(connection: Connection, topology: Topology) -> list[Place]:
    notes = [
        (it["config"].get("metadata") or {}).get(UPGRADE_KEY)
        for it in await topology.consumers_of(connection, topology.log_copy)
    ]
    return [msgspec.json.decode(it, type=Place) for it in notes if it]


async def restore_places(connection: Connection, topology: Topology) -> None:
    """Let each consumer continue at its position. Unacknowledged messages are redelivered."""
    for place in await noted_places(connection, topology):
        config = _restored(topology, place)
        if config is None:
            continue
        name = config["durable_name"]
        call = f"CONSUMER.INFO.{topology.log}.{name}"
        if await topology.ask(connection, call, {}, missing_ok=True) is None:
            body = {"stream_name": topology.log, "config": config}
            await topology.ask(connection, f"CONSUMER.CREATE.{topology.log}.{name}", body)
            crashpoint("upgrade.restored_place")


def _restored(topology: Topology, place: Place) -> dict[str, Any] | None:
    """The consumer's configuration on the new log; ``None`` if it only reads tasks."""
    filters = [it for it in place.filters if it != _tasks(topology)]
    if place.filters and not filters:
        return None
    config = {key: it for key, it in place.config.items() if key not in _FILTERS}
    if len(filters) == 1 and "filter_subject" in place.config:
        config["filter_subject"] = filters[0]
    elif filters:
        config["filter_subjects"] = filters
    if not place.has_begun and str(config.get("deliver_policy", "")).startswith("last"):
        return config
    config.pop("opt_start_time", None)
    return config | {"deliver_policy": "by_start_sequence", "opt_start_seq": place.done + 1}


_FILTERS = ("filter_subject", "filter_subjects")


def _tasks(topology: Topology) -> str:
    return topology.subjects.tasks()[0]


# --- tasks that were not taken yet ----------------------------------------------------------------


async def requests_config(connection: Connection, topology: Topology) -> dict[str, Any]:
    """The configuration with which the stream of requests begins.

    The run of a task without a key is named after the task's sequence. So waiting tasks keep their
    sequences (the stream first mirrors them), and no later task gets a sequence of an earlier one.
    """
    (wanted,) = (it for it in topology.wanted() if it["name"] == topology.requests)
    taken = max(
        (
            it.done
            for it in await noted_places(connection, topology)
            if _tasks(topology) in it.filters
        ),
        default=0,
    )
    last = await last_task(connection, topology)
    if last is None or last.sequence <= taken:
        state = await topology.stream_state(connection, topology.log_copy)
        return wanted | {"first_seq": int(state["last_seq"]) + 1}
    mirror = {
        "name": topology.log_copy,
        "filter_subject": _tasks(topology),
        "opt_start_seq": taken + 1,
    }
    # without limits, which could prevent it from copying everything
    kept = {it: wanted[it] for it in ("name", "storage", "num_replicas", "allow_direct")}
    return kept | {"compression": wanted["compression"], "mirror": mirror}


async def last_task(connection: Connection, topology: Topology) -> Stored | None:
    """The newest task in the copy."""
    return await fresh_last(connection, topology.log_copy, _tasks(topology))


# --- timers ---------------------------------------------------------------------------------------


async def rearm(connection: Connection, topology: Topology) -> int:
    """Arm every timer of the copy again in the stream of timers, for the same time; return their
    number.

    A timer that is already due fires at once. The copy also has timers that have fired meanwhile:
    firing again is harmless, as a timer is only a hint.
    """
    [timers_of_copy] = topology.subjects.matching("timer.>")
    armed = await fresh_many(connection, topology.log_copy, timers_of_copy, after=0)
    newest = {it.subject: it for it in armed if h.SCHEDULE_TARGET in it.headers}
    timers = list(newest.values())
    for index in range(0, len(timers), _AT_ONCE):
        some = timers[index : index + _AT_ONCE]
        await asyncio.gather(*(_rearm(connection, topology, it) for it in some))
        crashpoint("upgrade.rearmed")
    return len(timers)


async def _rearm(connection: Connection, topology: Topology, timer: Stored) -> None:
    own = {name: it for name, it in timer.headers.items() if not name.startswith("Nats-")}
    await connection.publish(
        timer.subject,
        timer.data,
        msg_id=timer.msg_id or f"timer:{timer.sequence}",
        headers={
            **own,
            h.SCHEDULE: timer.headers[h.SCHEDULE],
            h.SCHEDULE_TARGET: topology.subjects.due(timer.headers[h.SCHEDULE_TARGET]),
        },
    )
