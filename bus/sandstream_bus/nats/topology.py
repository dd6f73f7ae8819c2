"""Streams, buckets and consumers as data. ``installation.py`` verifies and creates them,
``stream_plan.py`` changes them.

<STEM>_LOG      run events, sandboxes, conversations, traces: the one log; only actors write it
<STEM>_REQUESTS tasks and requests: everything that others than actors write
<STEM>_TIMERS   messages that are due later, and those that are due now
<STEM>_OPEN     the index of runs that have not ended; the last message of a run counts
<STEM>_AGENTS   registrations of deployed agents; the last one of a name counts, no age limit
<STEM>_PARKED   messages that could not be handled
<STEM>_MEMORY   the state of each memory scope; the last one counts, no age limit
OBJ_<stem>…     the object buckets: for big payloads, and for the files of memories
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from sandstream_bus.errors import BusError, BusUnavailable, StoreFull, TopologyError
from sandstream_bus.nats.connection import Connection
from sandstream_bus.nats.retention import Retention, age_ns, share_bytes
from sandstream_bus.wire.subjects import Subjects

__all__ = ["ACK_WAIT_S", "FORMAT_KEY", "ConsumerSpec", "Retention", "Topology"]

_NS = 1_000_000_000
_DUPLICATE_WINDOW_NS = 600 * _NS
_SHORT_DUPLICATE_WINDOW_NS = 120 * _NS

FORMAT = 2
"""The format of all streams. Raised when older releases cannot work with them."""
REQUEST_LIMIT_BYTES = 1024 * 1024
"""The limit for one message from outside, including headers."""
FORMAT_KEY = "sandstream.topology"
"""The key of the format in each stream's metadata."""

UPGRADE_KEY = "sandstream.upgrade"
"""The metadata key of a stream that takes part in an unfinished upgrade."""
CREATED_KEY = "sandstream.created"
"""The metadata key of a copied log: when its original was created."""

ACK_WAIT_S = 5.0
"""A message is redelivered to another replica if no heartbeat arrives within this time."""


class ConsumerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A durable consumer: a filter over the log, shared by all replicas of a pool."""

    name: str
    filters: list[str]
    ack_wait_s: float = ACK_WAIT_S
    max_ack_pending: int = 5000
    start_sequence: int | None = None
    """Skip older messages; None: from the beginning of the log."""
    only_new: bool = False
    inactive_s: float | None = None
    """Delete the consumer after this time without a pull; None: never."""
    stream: str = ""
    """The stream that the consumer reads; empty: the log."""
    kind: str = ""
    """The kind of actor it feeds, if its name does not begin with that."""


class Topology:
    """Names and configuration of everything that one installation needs.

    Once a bus is open, ``retention`` has the installation's actual settings.
    """

    def __init__(self, subjects: Subjects, retention: Retention | None = None) -> None:
        self.subjects = subjects
        self.retention = retention or Retention()
        self.log = f"{subjects.stream_stem}_LOG"
        self.log_copy = f"{subjects.stream_stem}_LOG-COPY"
        """Exists only during an upgrade (see ``upgrade.py``)."""
        self.requests = f"{subjects.stream_stem}_REQUESTS"
        self.timers = f"{subjects.stream_stem}_TIMERS"
        self.open = f"{subjects.stream_stem}_OPEN"
        self.agents = f"{subjects.stream_stem}_AGENTS"
        self.parked = f"{subjects.stream_stem}_PARKED"
        self.memory = f"{subjects.stream_stem}_MEMORY"
        self.bucket = f"{subjects.stream_stem.lower()}-objects"
        self.memory_bucket = f"{subjects.stream_stem.lower()}-memory"

    @property
    def is_replicated(self) -> bool:
        """Whether several servers hold each stream, so that one may lag and writes may overlap."""
        return self.retention.replicas > 1

    def streams(self) -> list[dict[str, Any]]:
        """The configuration of each stream for the JetStream API, without its size.

        A stream that a new release adds is created by ``sandstream setup``, and by every program
        that opens a private server. The log comes first.
        """
        matching = self.subjects.matching
        keep = {
            "storage": "file",
            "num_replicas": self.retention.replicas,
            "allow_direct": True,
            "discard": "old",
        }
        locked = {
            # With schedules, TTL or rollups, a user who may publish one subject could write others,
            # or remove events.
            "allow_msg_ttl": False,
            "allow_msg_schedules": False,
            "allow_rollup_hdrs": False,
            "deny_delete": True,
            "discard": "new",
        }
        max_age = age_ns(self.retention.max_age_days)
        age = {"max_age": max_age}
        window = min(_DUPLICATE_WINDOW_NS, max_age or _DUPLICATE_WINDOW_NS)
        short_window = min(_SHORT_DUPLICATE_WINDOW_NS, window)  # the server's own default
        return [
            {
                **keep,
                **age,
                **locked,
                "name": self.log,
                "subjects": [
                    *matching("run.>", "sandbox.>", "session.>", "trace.>"),
                    *matching("memory.*.extract", "memory.*.merge"),
                    *matching("memory.*.edit", "memory.*.event"),
                ],
                "max_consumers": 10_000,
                "duplicate_window": window,
                "compression": "s2",
                "republish": dict(zip(("src", "dest"), matching("run.>", "live.>"), strict=True)),
            },
            {
                # Separate from the log: an outside user's message id must not match an actor's.
                **keep,
                **age,
                **locked,
                "name": self.requests,
                "subjects": matching("task.*", "ask.>"),
                "max_msg_size": REQUEST_LIMIT_BYTES,
                "duplicate_window": window,
                "compression": "s2",
            },
            {
                **keep,
                **age,
                "name": self.timers,
                "subjects": matching("timer.>", "due.>"),
                "allow_msg_ttl": True,
                "allow_msg_schedules": True,
                "allow_rollup_hdrs": True,  # comes with schedules
                "duplicate_window": window,
            },
            {
                **keep,  # no age limit: entries of removed runs are swept
                "name": self.open,
                "discard": "new",  # a full index must not drop open runs
                "subjects": [self.subjects.open("*")],
                "max_msgs_per_subject": 1,
                "allow_msg_ttl": True,
                "duplicate_window": short_window,
            },
            {
                **keep,
                "name": self.agents,
                "discard": "new",
                "subjects": matching("agent.*"),
                "max_msgs_per_subject": 1,
            },
            {
                **keep,
                "name": self.memory,
                "discard": "new",
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
            {
                **keep,
                **age,
                "name": self.parked,
                "subjects": [self.subjects.all_parked()],
                "duplicate_window": short_window,
            },
            {
                **keep,
                "name": f"OBJ_{self.bucket}",
                "subjects": [f"$O.{self.bucket}.C.>", f"$O.{self.bucket}.M.>"],
                "max_age": age_ns(self.retention.max_age_days, longer_days=1),
                "discard": "new",
                "allow_rollup_hdrs": True,
            },
        ]

    def wanted(self) -> list[dict[str, Any]]:
        """The complete configuration of new streams."""
        return [
            config
            | {
                "max_bytes": share_bytes(config["name"], self.retention.max_bytes),
                "metadata": {FORMAT_KEY: str(FORMAT)},
            }
            for config in self.streams()
        ]

    async def ask(
        self, connection: Connection, call: str, body: dict[str, Any], *, missing_ok: bool = False
    ) -> dict[str, Any] | None:
        """One JetStream API call; with ``missing_ok``, ``None`` if the object does not exist."""
        return await _api(connection, call, body, missing_ok=missing_ok)

    def stream_of(self, spec: ConsumerSpec) -> str:
        """The stream that the consumer reads."""
        return spec.stream or self.log

    async def ensure_consumer(self, connection: Connection, spec: ConsumerSpec) -> None:
        """Create the consumer unless it exists. An existing one keeps its position."""
        stream = self.stream_of(spec)
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
            "num_replicas": 0,  # as many as the log has, even after a change
        }
        if spec.start_sequence is not None:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": spec.start_sequence}
        elif spec.only_new:
            config |= {"deliver_policy": "new"}
        if spec.inactive_s is not None:
            config["inactive_threshold"] = int(spec.inactive_s * _NS)
        known = await _api(connection, f"CONSUMER.INFO.{stream}.{spec.name}", {}, missing_ok=True)
        if known is not None:
            for key in ("deliver_policy", "opt_start_seq", "opt_start_time"):
                config.pop(key, None)
                if key in known["config"]:
                    config[key] = known["config"][key]
            if all(known["config"].get(key) == value for key, value in config.items()):
                return
        body = {"stream_name": stream, "config": config}
        await _api(connection, f"CONSUMER.CREATE.{stream}.{spec.name}", body)

    async def consumer_info(self, connection: Connection, name: str) -> dict[str, Any] | None:
        return await _api(connection, f"CONSUMER.INFO.{self.log}.{name}", {}, missing_ok=True)

    async def delete_consumer(self, connection: Connection, name: str) -> None:
        await _api(connection, f"CONSUMER.DELETE.{self.log}.{name}", {}, missing_ok=True)

    async def consumers(self, connection: Connection) -> list[dict[str, Any]]:
        """The server's info about each consumer of the log, of requests and of timers."""
        streams = (self.log, self.requests, self.timers)
        found = await asyncio.gather(*(self.consumers_of(connection, it) for it in streams))
        return [info for of_stream in found for info in of_stream]

    async def consumers_of(self, connection: Connection, stream: str) -> list[dict[str, Any]]:
        """The server's info about each consumer of one stream."""
        return await _consumers(connection, stream)

    async def waiting(self, connection: Connection, prefix: str) -> dict[str, int]:
        """For each consumer of the log whose name begins with ``prefix``: the number of messages
        that wait or are in progress.
        """
        return {
            info["name"]: info["num_pending"] + info["num_ack_pending"]
            for info in await _consumers(connection, self.log)
            if info["name"].startswith(prefix)
        }

    async def subjects_of(self, connection: Connection, stream: str, filter: str) -> list[str]:
        """The subjects that have messages, without reading messages."""
        found: list[str] = []
        while True:
            query = {"subjects_filter": filter, "offset": len(found)}
            info = await _api(connection, f"STREAM.INFO.{stream}", query)
            assert info is not None
            page = list(info["state"].get("subjects") or ())
            found.extend(page)
            if not page or len(found) >= info.get("total", 0):
                return sorted(found)

    async def count(self, connection: Connection, stream: str, filter: str) -> int:
        """How many messages match a filter that matches few subjects."""
        info = await _api(connection, f"STREAM.INFO.{stream}", {"subjects_filter": filter})
        assert info is not None
        return sum((info["state"].get("subjects") or {}).values())

    async def created(self, connection: Connection, stream: str) -> str:
        """When the stream was created: unique to an installation. An upgrade keeps it."""
        info = await self.stream_info(connection, stream)
        marks = info["config"].get("metadata") or {}
        return str(marks.get(CREATED_KEY) or info["created"])

    async def stream_info(self, connection: Connection, stream: str) -> dict[str, Any]:
        """Configuration (``config``), contents (``state``) and the server's time (``ts``)."""
        info = await _api(connection, f"STREAM.INFO.{stream}", {})
        assert info is not None
        return info

    async def stream_state(self, connection: Connection, stream: str) -> dict[str, Any]:
        state: dict[str, Any] = (await self.stream_info(connection, stream))["state"]
        return state


async def _consumers(connection: Connection, stream: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = await _api(connection, f"CONSUMER.LIST.{stream}", {"offset": len(found)})
        assert page is not None
        consumers: list[dict[str, Any]] = page.get("consumers") or []
        found.extend(consumers)
        if not consumers or len(found) >= page["total"]:
            return found


async def _api(
    connection: Connection, call: str, body: dict[str, Any], *, missing_ok: bool = False
) -> dict[str, Any] | None:
    """One JetStream API call, repeated while the server starts or elects a leader."""
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
    return TopologyError(text, err_code=int(info.get("err_code") or 0))
