"""What a cheap message costs: garbage for runs that nobody started, by subject family.

python benchmarks/cheap_messages.py [--messages 4000] [--sizes 10000,200000] [--only cancel,result]

All actors run beside a log that already holds so many events. For each family, messages are
published as fast as the server takes them, each for another invented run: first such as nobody can
read, then such as fit their subject. Then a plain run is submitted at once. Shown are its time
against a quiet one, and the CPU that the server and the actors spent on each message. A family that
costs much more beside a long log makes somebody search it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import statistics
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import past_log
import processes
from installations import Access, Installation
from lab import Lab
from sandstream_bus.bus import Bus
from sandstream_bus.nats.connect_options import ConnectOptions

from sandstream.testing import Script, script_for, text

_ROOT = Path(__file__).parents[1]
_GOLDEN = _ROOT / "tests" / "golden" / "v1"
_ASKS = {
    "ask.{user}.run.{run}.cancel": "cancel.requested",
    "ask.{user}.run.{run}.input": "input.staged",
    "ask.{user}.run.{run}.approval": "approval.decided",
    "ask.{user}.memory.{scope}.merge": "memory.merge",
    "ask.{user}.task.{agent}": "task",
}
_NOT_READ = ("agent.", "open.", "parked.", "alive.", "live.", "timer.")
"""Families that no actor consumes."""
_UNREADABLE = b'{"type":"cancel.requested'
_IN_FLIGHT = 256
_SETTLED_S = 300.0


class Family(NamedTuple):
    """A shape of subjects, and a message that fits it."""

    shape: str
    fitting: bytes


class Cost(NamedTuple):
    """The effect of a family's messages."""

    after_s: float
    """The duration of a plain run right after them."""
    drained_s: float
    server_ms: float
    """CPU per message."""
    actors_ms: float


def families() -> Iterator[Family]:
    """Every documented family that an actor consumes."""
    table = importlib.util.spec_from_file_location(
        "wire_channels", _ROOT / "docs" / "wire_channels.py"
    )
    assert table is not None and table.loader is not None
    module = importlib.util.module_from_spec(table)
    table.loader.exec_module(module)
    shapes = dict(_ASKS)
    for row in module.channels():
        shape = row.address.removeprefix("sandstream.")
        if row.messages and not shape.startswith(_NOT_READ):
            first = row.messages[0]
            shapes[shape] = str(first.__struct_config__.tag or first.__name__.lower())
    for shape, tag in sorted(shapes.items()):
        files = sorted(_GOLDEN.glob(f"{tag}*.json"), key=lambda it: (len(it.name), it.name))
        if "run.{run}.sandbox" in shape:
            files = [_GOLDEN / "call.requested.sandbox.json"]
        if files:
            yield Family(shape, files[0].read_bytes())


async def open_bus(access: Access) -> Bus:
    options = ConnectOptions(servers=[access.url], user=access.user, password=access.password)
    return await Bus.open(options)


async def publish(access: Access, family: Family, messages: int, data: bytes) -> None:
    """Send this many, each for a different run; returns when all are acknowledged."""
    bus = await open_bus(access)
    try:
        known = await _known(bus)
        gate = asyncio.Semaphore(_IN_FLIGHT)

        async def one() -> None:
            run = f"z{uuid.uuid4().hex[:16]}"
            tokens = {"run": run, "sandbox": run, "scope": run, "session": run, **known}
            tokens |= {"trace": uuid.uuid4().hex, "call": "t1-0", "op": run, "group": "main"}
            if ".call." in family.shape:
                tokens["pool"] = known["tools"]
            async with gate:
                await bus.connection.publish(
                    f"sandstream.{family.shape.format(**tokens)}", data, msg_id=f"{run}:x"
                )

        await asyncio.gather(*(one() for _ in range(messages)))
    finally:
        await bus.close()


async def _known(bus: Bus) -> dict[str, str]:
    """Names that exist: messages to unknown names would cost nothing."""
    names = [it["name"] for it in await bus.topology.consumers(bus.connection)]
    tools = next(it.removeprefix("tools-") for it in names if it.startswith("tools-"))
    node = next(it for it in names if it.startswith("sandbox-local-"))
    return {
        "pool": "main",
        "tools": tools,
        "agent": "Adder",
        "user": "alice",
        "provider": "local",
        "node": node.removeprefix("sandbox-local-"),
    }


async def settled(access: Access) -> None:
    """Wait until all consumers are idle."""
    bus = await open_bus(access)
    topology, deadline = bus.topology, time.monotonic() + _SETTLED_S
    try:
        while True:
            waiting = 0
            for stream in (topology.log, topology.requests, topology.timers):
                page = await topology.ask(bus.connection, f"CONSUMER.LIST.{stream}", {})
                for it in (page or {}).get("consumers") or []:
                    waiting += it["num_pending"] + it["num_ack_pending"]
            if not waiting:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{waiting} messages are still not handled")
            await asyncio.sleep(0.1)
    finally:
        await bus.close()


def plain_s(installed: Installation, runs: int = 1) -> list[float]:
    each: list[float] = installed.ask(do="in_turn", runs=runs, turns=1).answer["each_s"]
    return each


def measure(installed: Installation, family: Family, messages: int, data: bytes) -> Cost:
    access = installed.access()
    server, actors = installed.roles["nats-server"], installed.roles["actors"]
    before = processes.cpu_s(server), processes.cpu_s(actors)
    began = time.monotonic()
    asyncio.run(publish(access, family, messages, data))
    after_s = plain_s(installed)[0]
    asyncio.run(settled(access))
    spent = processes.cpu_s(server) - before[0], processes.cpu_s(actors) - before[1]
    per_ms = [it * 1000 / messages for it in spent]
    return Cost(after_s, time.monotonic() - began, *per_ms)


def start(lab: Lab, size: int) -> Installation:
    """All actors, each in its own process, a submitter, and a log of that size."""
    base_url = lab.model(Script(default=script_for("", [text("done").forever()])))
    home = lab.home()
    common: dict[str, Any] = {"base_url": base_url, "home": home, "loop": "uvloop"}
    worker = lab.start("worker", "sandstream", **common)
    worker.wait_ready()  # it starts the server
    names = ("harness", "measured_sandbox_actor", "measured_memory_actor")
    actors = [worker, *(lab.start(name, "sandstream", **common) for name in names)]
    caller = lab.start("submitter", "sandstream", **common)
    for program in (*actors, caller):
        program.wait_ready()
    record = json.loads((home / "server.json").read_bytes())
    access = Access(record["url"], record["user"], record["password"])
    asyncio.run(past_log.fill(access.url, size, user=access.user, password=access.password))
    # started last: it would first make traces of all these runs
    tracing = lab.start("tracing", "sandstream", settings={"BENCH_ONLY_NEW": "1"}, **common)
    tracing.wait_ready()
    actors.append(tracing)
    roles = {
        "nats-server": lab.server_pids(home),
        "actors": [it.pid for it in actors],
        "caller": [caller.pid],
    }
    environment = lab.environment(base_url, home)
    return Installation("all actors", home, environment, caller, roles, models=lab.model_pids)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=4000)
    parser.add_argument("--sizes", default="10000,200000", help="events in the log before")
    parser.add_argument("--only", default="", help="families whose shape contains one of these")
    parser.add_argument("--json", type=Path, help="write the figures there, too")
    options = parser.parse_args()
    wanted = [it for it in options.only.split(",") if it]
    chosen = [it for it in families() if not wanted or any(one in it.shape for one in wanted)]
    rows: list[dict[str, Any]] = []
    head = f"{'family':38} {'body':10} {'log':>8} {'run after':>10} {'ratio':>7}"
    print(f"{head} {'drained':>8} {'server':>10} {'actors':>10}", flush=True)
    for size in map(int, options.sizes.split(",")):
        with Lab() as lab:
            installed = start(lab, size)
            asyncio.run(settled(installed.access()))
            plain_s(installed, 10)
            quiet_s = statistics.median(plain_s(installed, 20))
            for family in chosen:
                for body, data in (("unreadable", _UNREADABLE), ("fitting", family.fitting)):
                    cost = measure(installed, family, options.messages, data)
                    row = {
                        "family": family.shape,
                        "body": body,
                        "log": size,
                        **cost._asdict(),
                        "ratio": cost.after_s / quiet_s,
                    }
                    rows.append(row)
                    print(
                        f"{family.shape:38} {body:10} {size:>8} {cost.after_s * 1000:>7.0f} ms "
                        f"{row['ratio']:>7.1f} {cost.drained_s:>6.1f} s "
                        f"{cost.server_ms:>7.3f} ms {cost.actors_ms:>7.3f} ms",
                        flush=True,
                    )
            print(f"a quiet plain run beside {size} events: {quiet_s * 1000:.1f} ms", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
