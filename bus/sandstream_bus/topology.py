"""Streams, buckets and consumers as data, and the one function that makes the server agree.

<STEM>_LOG      tasks, run events, sandboxes, conversations, timers, traces: the one log
<STEM>_AGENTS   registrations of deployed agents; the last of a name counts, no age limit
<STEM>_PARKED   messages that could not be handled
<STEM>_MEMORY   the state of each memory scope; the last one counts, no age limit
OBJ_<stem>…     the object buckets: for big payloads, and for the files of memories
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from sandstream_bus.connection import Connection
from sandstream_bus.errors import BusError, BusUnavailable, StoreFull, TopologyError
from sandstream_bus.subjects import Subjects

_NS = 1_000_000_000
_DAY_S = 86_400

ACK_WAIT_S = 5.0
"""How long a message may be without a beat before another replica gets it."""


class Retention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long and how safely things are kept; the operator's choice."""

    replicas: int = 1
    max_age_days: float = 30.0
    max_bytes: int = -1


class ConsumerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A durable consumer: a filter over the log, shared by all replicas of a pool."""

    name: str
    filters: list[str]
    ack_wait_s: float = ACK_WAIT_S
    max_ack_pending: int = 5000
    start_sequence: int | None = None
    """Skip what is older; None: from the beginning of the log."""
    only_new: bool = False
    inactive_s: float | None = None
    """Delete the consumer when nobody has pulled for so long; None: never."""


class Topology:
    """Names and configuration of everything that one installation needs."""

    def __init__(self, subjects: Subjects, retention: Retention | None = None) -> None:
        self.subjects = subjects
        self.retention = retention or Retention()
        self.log = f"{subjects.stream_stem}_LOG"
        self.agents = f"{subjects.stream_stem}_AGENTS"
        self.parked = f"{subjects.stream_stem}_PARKED"
        self.memory = f"{subjects.stream_stem}_MEMORY"
        self.bucket = f"{subjects.stream_stem.lower()}-objects"
        self.memory_bucket = f"{subjects.stream_stem.lower()}-memory"

    def streams(self) -> list[dict[str, Any]]:
        """The configuration of each stream, as the JetStream API takes it."""
        p = self.subjects.prefix
        keep = {
            "storage": "file",
            "num_replicas": self.retention.replicas,
            "allow_direct": True,
            "discard": "old",
        }
        age = {"max_age": int(self.retention.max_age_days * _DAY_S * _NS)}
        return [
            {
                **keep,
                **age,
                "name": self.log,
                "subjects": [
                    *(f"{p}.task.*", f"{p}.run.>"),
                    *(f"{p}.sandbox.>", f"{p}.session.>", f"{p}.timer.>", f"{p}.trace.>"),
                    *(f"{p}.memory.*.{it}" for it in ("extract", "merge", "edit", "event")),
                ],
                "max_bytes": self.retention.max_bytes,
                "max_consumers": 10_000,
                "duplicate_window": 600 * _NS,
                "allow_msg_ttl": True,
                "allow_msg_schedules": True,
                "compression": "s2",
                "republish": {"src": f"{p}.run.>", "dest": f"{p}.live.>"},
            },
            {
                **keep,
                "name": self.agents,
                "subjects": [f"{p}.agent.*"],
                "max_msgs_per_subject": 1,
            },
            {
                **keep,
                "name": self.memory,
                "subjects": [self.subjects.memory_states()],
                "max_msgs_per_subject": 1,
                "allow_msg_ttl": True,
            },
            {
                **keep,
                "name": f"OBJ_{self.memory_bucket}",
                "subjects": [f"$O.{self.memory_bucket}.C.>", f"$O.{self.memory_bucket}.M.>"],
                "discard": "new",
                "allow_rollup_hdrs": True,
                "allow_msg_ttl": True,
            },
            {**keep, **age, "name": self.parked, "subjects": [f"{p}.parked.>"]},
            {
                **keep,
                "name": f"OBJ_{self.bucket}",
                "subjects": [f"$O.{self.bucket}.C.>", f"$O.{self.bucket}.M.>"],
                "max_age": int((self.retention.max_age_days + 1) * _DAY_S * _NS),
                "discard": "new",
                "allow_rollup_hdrs": True,
            },
        ]

    async def apply(self, connection: Connection) -> None:
        """Make all streams exist as described. Safe to call from any number of processes."""
        await asyncio.gather(*(_apply_stream(connection, config) for config in self.streams()))

    async def ensure_consumer(self, connection: Connection, spec: ConsumerSpec) -> None:
        """Create the consumer unless it is there. An existing one keeps its place in the log."""
        config: dict[str, Any] = {
            "durable_name": spec.name,
            "name": spec.name,
            "ack_policy": "explicit",
            "ack_wait": int(spec.ack_wait_s * _NS),
            "max_deliver": -1,
            "max_ack_pending": spec.max_ack_pending,
            "max_waiting": 2048,
            "filter_subjects": spec.filters,
            "deliver_policy": "all",
            "num_replicas": self.retention.replicas,
        }
        if spec.start_sequence is not None:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": spec.start_sequence}
        elif spec.only_new:
            config |= {"deliver_policy": "new"}
        if spec.inactive_s is not None:
            config["inactive_threshold"] = int(spec.inactive_s * _NS)
        known = await _api(connection, f"CONSUMER.INFO.{self.log}.{spec.name}", {}, missing_ok=True)
        if known is not None:
            for key in ("deliver_policy", "opt_start_seq", "opt_start_time"):
                config.pop(key, None)
                if key in known["config"]:
                    config[key] = known["config"][key]
            if all(known["config"].get(key) == value for key, value in config.items()):
                return
        body = {"stream_name": self.log, "config": config}
        await _api(connection, f"CONSUMER.CREATE.{self.log}.{spec.name}", body)

    async def consumer_info(self, connection: Connection, name: str) -> dict[str, Any] | None:
        return await _api(connection, f"CONSUMER.INFO.{self.log}.{name}", {}, missing_ok=True)

    async def delete_consumer(self, connection: Connection, name: str) -> None:
        await _api(connection, f"CONSUMER.DELETE.{self.log}.{name}", {}, missing_ok=True)

    async def consumers(self, connection: Connection) -> list[dict[str, Any]]:
        """What the server says of each consumer of the log."""
        found: list[dict[str, Any]] = []
        while True:
            page = await _api(connection, f"CONSUMER.LIST.{self.log}", {"offset": len(found)})
            assert page is not None
            consumers: list[dict[str, Any]] = page.get("consumers") or []
            found.extend(consumers)
            if not consumers or len(found) >= page["total"]:
                return found

    async def waiting(self, connection: Connection, prefix: str) -> dict[str, int]:
        """For each consumer whose name begins so: how many messages wait in it or are being worked
        on.
        """
        return {
            info["name"]: info["num_pending"] + info["num_ack_pending"]
            for info in await self.consumers(connection)
            if info["name"].startswith(prefix)
        }

    async def subjects_of(self, connection: Connection, stream: str, filter: str) -> list[str]:
        """The subjects that have messages, without reading any of them."""
        found: list[str] = []
        while True:
            query = {"subjects_filter": filter, "offset": len(found)}
            info = await _api(connection, f"STREAM.INFO.{stream}", query)
            assert info is not None
            page = list(info["state"].get("subjects") or ())
            found.extend(page)
            if not page or len(found) >= info.get("total", 0):
                return sorted(found)

    async def created(self, connection: Connection, stream: str) -> str:
        """When the stream was made: no two installations have the same."""
        info = await _api(connection, f"STREAM.INFO.{stream}", {})
        assert info is not None
        return str(info["created"])

    async def stream_state(self, connection: Connection, stream: str) -> dict[str, Any]:
        info = await _api(connection, f"STREAM.INFO.{stream}", {})
        assert info is not None
        state: dict[str, Any] = info["state"]
        return state


async def _apply_stream(connection: Connection, config: dict[str, Any]) -> None:
    name = config["name"]
    found = await _api(connection, f"STREAM.INFO.{name}", {}, missing_ok=True)
    if found is None:
        try:
            await _api(connection, f"STREAM.CREATE.{name}", config)
        except TopologyError:
            found = await _api(connection, f"STREAM.INFO.{name}", {}, missing_ok=True)
            if found is None:
                raise
        else:
            return
    if any(found["config"].get(key) != value for key, value in config.items()):
        await _api(connection, f"STREAM.UPDATE.{name}", found["config"] | config)


async def _api(
    connection: Connection, call: str, body: dict[str, Any], *, missing_ok: bool = False
) -> dict[str, Any] | None:
    """One JetStream API call, repeated while the server is starting or electing."""
    payload = msgspec.json.encode(body) if body else b""
    for attempt in range(20):
        try:
            reply = await connection.request(f"$JS.API.{call}", payload, timeout_s=5)
        except (TimeoutError, BusUnavailable) as error:
            if attempt == 19:
                raise BusUnavailable(
                    f"JetStream does not answer ({call}). Is it enabled on the server, and may "
                    "this user use $JS.API.>?"
                ) from error
            await asyncio.sleep(0.1)
            await connection.wait_connected(1.0)
            continue
        answer: dict[str, Any] = msgspec.json.decode(reply.data)
        error_info = answer.get("error")
        if error_info is None:
            return answer
        if error_info.get("code") == 404 and missing_ok:
            return None
        if error_info.get("code") == 503 and attempt < 19:
            await asyncio.sleep(0.25)
            continue
        raise _topology_error(call, error_info)
    raise BusError(f"JetStream call {call} did not succeed")


def _topology_error(call: str, info: dict[str, Any]) -> BusError:
    text = f"{call}: {info.get('description')} (JetStream error {info.get('err_code')})"
    if info.get("err_code") in (10002, 10047, 10023):
        return StoreFull(f"{text}. Free disk space or raise JetStream's limits.")
    return TopologyError(text)
