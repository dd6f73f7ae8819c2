"""``sandstream up``: the bus, all actors and the agents of files, until Ctrl-C."""

from __future__ import annotations

import argparse
import shlex
from contextlib import AsyncExitStack

from sandstream_actors.registry import ActorEntry, find_actors, load
from sandstream_bus.wire.subjects import check_token

from sandstream.cli.commands.up.sandboxes import serve_providers
from sandstream.cli.commands.worker.apps import App, load_apps
from sandstream.cli.exits import Exit
from sandstream.cli.services.launch import (
    announce,
    harness,
    opened,
    ready_of,
    sessions_actor,
    stopped_with_parent,
    worker,
)
from sandstream.cli.services.replicas import Replicas
from sandstream.cli.session import run_async, say, stop_signals

_CONCURRENCY = 256
_TOOL_CONCURRENCY = 64


def main(arguments: argparse.Namespace) -> int:
    check_token(arguments.pool, "the pool")
    for actor in _wanted(arguments):
        if actor.up_check:  # what is wrong with it is said here, not by a process that dies
            load(actor.up_check)()
    apps = load_apps(arguments.apps, debug=arguments.debug)
    return run_async(_up(arguments, apps), debug=arguments.debug)


def _wanted(arguments: argparse.Namespace) -> list[ActorEntry]:
    """The actors that ``up`` starts."""
    return [
        it
        for it in find_actors().values()
        if it.in_up != "no" and not getattr(arguments, f"no_{it.name}", False)
    ]


async def _up(arguments: argparse.Namespace, apps: list[App]) -> int:
    pool: str = arguments.pool
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(opened("sandstream-up", create="if_empty"))
        # before the agents are offered: the first task may need it
        sandboxes = {} if arguments.no_sandbox else await serve_providers(stack, bus, _CONCURRENCY)
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
        if not arguments.no_sessions:
            await stack.enter_async_context(sessions_actor(bus, _CONCURRENCY))
        if arguments.replicas > 1:
            of_pool = ("--pool", pool, "--concurrency", str(_CONCURRENCY))
            await stack.enter_async_context(Replicas(arguments.replicas - 1, "harness", *of_pool))
        names = sorted(name for app in apps for name in app.agents)
        example = names[0] if names else "AGENT"
        hints = [
            f'submit:  sandstream submit {shlex.quote(example)} "hello" --wait',
            "follow:  sandstream watch",
            "look:    sandstream show RUN, sandstream stats, sandstream memory",
        ]
        if not names:
            hints.insert(0, "serve:   sandstream worker app.py")
        stopped = stop_signals()
        announce(
            ready_of(bus, pool=pool, replicas=arguments.replicas, agents=names, **sandboxes),
            as_json=arguments.json,
            title="sandstream is up (Ctrl-C stops)",
            hints=hints,
        )
        for actor in _wanted(arguments):
            if actor.in_up == "process":  # these read the log: no run waits for them
                await stack.enter_async_context(Replicas(1, actor.name))
        with stopped_with_parent(arguments.parent_pipe, stopped):
            await stopped.wait()
        say("stopping (press Ctrl-C again to stop at once)")
    return Exit.OK
