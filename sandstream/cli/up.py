"""``sandstream up``: the bus, harness replicas and the agents of files, until Ctrl-C."""

from __future__ import annotations

import argparse
import shlex
from contextlib import AsyncExitStack

from sandstream_bus.subjects import check_token

from sandstream.cli.apps import App, load_apps
from sandstream.cli.exits import Exit
from sandstream.cli.replicas import Replicas
from sandstream.cli.services import announce, harness, opened, ready_of, worker
from sandstream.cli.session import run_async, say, stop_signals

_CONCURRENCY = 256
_TOOL_CONCURRENCY = 64


def main(arguments: argparse.Namespace) -> int:
    check_token(arguments.pool, "the pool")
    apps = load_apps(arguments.apps, debug=arguments.debug)
    return run_async(_up(arguments, apps), debug=arguments.debug)


async def _up(arguments: argparse.Namespace, apps: list[App]) -> int:
    pool: str = arguments.pool
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(opened("sandstream-up"))
        for app in apps:
            await stack.enter_async_context(
                worker(
                    bus,
                    app,
                    pool=app.pool,
                    harness_pool=pool,
                    concurrency=_TOOL_CONCURRENCY,
                )
            )
        await stack.enter_async_context(harness(bus, pool, _CONCURRENCY))
        if arguments.replicas > 1:
            await stack.enter_async_context(
                Replicas(arguments.replicas - 1, pool=pool, concurrency=_CONCURRENCY)
            )
        names = sorted(name for app in apps for name in app.agents)
        example = names[0] if names else "AGENT"
        hints = [
            f'submit:  sandstream submit {shlex.quote(example)} "hello" --wait',
            "follow:  sandstream watch",
        ]
        if not names:
            hints.insert(0, "serve:   sandstream worker app.py")
        stopped = stop_signals()
        announce(
            ready_of(bus, pool=pool, replicas=arguments.replicas, agents=names),
            as_json=arguments.json,
            title="sandstream is up (Ctrl-C stops)",
            hints=hints,
        )
        await stopped.wait()
        say("stopping (once more: at once)")
    return Exit.OK
