"""One of two harnesses, one of two workers and the client are behind proxies of their own. What the
proxies do to them must not be seen in any run.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from chaos.evidence import Kills, Outcome
from chaos.fleet import Fleet, judge_runs
from chaos.matrix import scripted_model
from chaos.scenarios import MIDDLE, PLAIN, SHORT, Scenario
from sandstream_bus.nats.connect_options import ConnectOptions
from sandstream_bus.nats.topology import ACK_WAIT_S
from sandstream_bus.wire.messages import RunDone
from support.servers.tcp_proxy import BOTH, Direction, TcpProxy

from sandstream.client import Client
from sandstream.settings import Settings

DROPS = 12
DELAY_S = 3.0
DELAYED_FOR_S = 10.0
NOTICED_WITHIN_S = 40.0
"""A dead connection is noticed after three pings, of 5 s each, and a try to connect."""
ENDS_WITHIN_S = 60.0
PACE_S = 0.25
_MIX = (SHORT, MIDDLE, PLAIN)

Fault = Callable[[Sequence[TcpProxy]], Awaitable[None]]


async def dropped(proxies: Sequence[TcpProxy]) -> None:
    """All connections break, again and again."""
    for _ in range(DROPS):
        await asyncio.sleep(0.7)
        for proxy in proxies:
            proxy.drop()


async def refused(proxies: Sequence[TcpProxy]) -> None:
    """All connections break, and for a while nobody gets a new one."""
    for proxy in proxies:
        proxy.refuse()
    await asyncio.sleep(2 * ACK_WAIT_S)
    for proxy in proxies:
        proxy.open()


async def half_open(proxies: Sequence[TcpProxy]) -> None:
    """Bytes vanish in both directions until everybody has noticed."""
    await _half_open(proxies, BOTH)


async def deaf(proxies: Sequence[TcpProxy]) -> None:
    """The server hears everything, and its answers vanish: publishes are stored without an ack."""
    await _half_open(proxies, frozenset(("down",)))


async def mute(proxies: Sequence[TcpProxy]) -> None:
    """What is sent vanishes. Messages still arrive, and beats and acks do not."""
    await _half_open(proxies, frozenset(("up",)))


async def _half_open(proxies: Sequence[TcpProxy], swallows: frozenset[Direction]) -> None:
    await asyncio.sleep(1.0)  # runs are going by then
    known = [proxy.accepted for proxy in proxies]
    for proxy in proxies:
        proxy.half_open(swallows)
    for proxy, count in zip(proxies, known, strict=True):
        await proxy.until_accepted(count + 1, NOTICED_WITHIN_S)


async def delayed(proxies: Sequence[TcpProxy]) -> None:
    """Every byte is late: an answer takes longer than a publisher waits for it."""
    for proxy in proxies:
        proxy.delay_s = DELAY_S
    await asyncio.sleep(DELAYED_FOR_S)
    for proxy in proxies:
        proxy.delay_s = 0.0


FAULTS = (dropped, refused, half_open, deaf, mute, delayed)


async def network_scene(directory: Path, fault: Fault) -> Outcome:
    """Ask for runs until the fault is over; each run ends, as the client behind a proxy sees it."""
    outcome = Outcome(f"network: {fault.__name__}", "mixed")
    with scripted_model() as model:
        async with Fleet(directory, model.base_url) as fleet, _behind(fleet) as (client, proxies):
            began = time.time_ns()
            going = asyncio.ensure_future(fault(proxies))
            runs = await _submit(client, going, fault.__name__)
            await going
            pause = (began, time.time_ns() + int((ACK_WAIT_S + 1) * 1e9))
            late = await _late(client, [key for key, _ in runs])
            outcome.check(not late, f"not done {ENDS_WITHIN_S} s after the fault: {late}")
            await judge_runs(outcome, fleet, model, runs, Kills(pauses_ns=(pause,)))
            again = sum(proxy.accepted for proxy in proxies)
            outcome.name += f", {len(runs)} runs, {again} connections"
    return outcome


@asynccontextmanager
async def _behind(fleet: Fleet) -> AsyncIterator[tuple[Client, list[TcpProxy]]]:
    """Two harnesses and two workers, one of each behind a proxy, and a client behind a third."""
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(TcpProxy(fleet.server.port)) for _ in range(3)]
        await fleet.replicas_of(harness=1, worker=1)
        await fleet.replica("harness", url=proxies[0].url)
        await fleet.replica("worker", url=proxies[1].url)
        options = ConnectOptions(servers=[proxies[2].url])
        client = await Client.connect(Settings(home=fleet.directory, nats=options))
        stack.push_async_callback(client.close)
        yield client, proxies


async def _submit(
    client: Client, fault: asyncio.Future[None], name: str
) -> list[tuple[str, Scenario]]:
    """Ask for a run every quarter of a second until the fault is over, and for a few after it."""
    runs: list[tuple[str, Scenario]] = []
    after = 0
    asking: list[asyncio.Task[str]] = []
    for number in itertools.count():
        after += fault.done()
        if after > len(_MIX):
            break
        key, kind = f"{name}-{number}", _MIX[number % len(_MIX)]
        runs.append((key, kind))
        submitting = client.submit("clerk", kind.input(key), key=key, context={"key": key})
        asking.append(asyncio.ensure_future(submitting))
        await asyncio.sleep(PACE_S)
    await asyncio.gather(*asking)
    return runs


async def _late(client: Client, keys: Sequence[str]) -> list[str]:
    """The runs whose end the client does not see."""

    async def ends(key: str) -> bool:
        try:
            async with asyncio.timeout(ENDS_WITHIN_S):
                return isinstance(await client.wait(key), RunDone)
        except TimeoutError:
            return False

    seen = await asyncio.gather(*map(ends, keys))
    return [key for key, ended in zip(keys, seen, strict=True) if not ended]
