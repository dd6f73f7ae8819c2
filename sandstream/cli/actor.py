"""``sandstream actor``: one replica of an actor."""

from __future__ import annotations

import argparse

from sandstream.cli.exits import CliError, Exit

_KINDS = {
    "harness": "takes the model turns of a pool's runs",
    "sandbox": "makes and keeps the sandboxes of this machine, and runs commands in them",
    "tracing": "reads the log, keeps traces and sums of all runs, and exports them",
    "memory": "learns from runs that have ended, for agents with a memory",
}
_ONLY = {
    "pool": ("harness",),
    "provider": ("sandbox", "memory"),
    "node": ("memory",),
    "isolation": ("sandbox",),
    "group": ("tracing",),
    "store": ("tracing",),
    "content": ("tracing",),
    "redact": ("tracing",),
    "only_new": ("tracing",),
}
_NOTE = "tool hosts are started by `sandstream worker app.py`"


def main(arguments: argparse.Namespace) -> int:
    if arguments.kind is None:
        return _list(arguments)
    if arguments.kind not in _KINDS:
        raise CliError(
            Exit.USAGE,
            f"there is no actor {arguments.kind!r}; the kinds are: {', '.join(_KINDS)} ({_NOTE})",
        )
    for flag, kinds in _ONLY.items():
        if getattr(arguments, flag) is not None and arguments.kind not in kinds:
            commands = " and ".join(f"`sandstream actor {kind}`" for kind in kinds)
            raise CliError(Exit.USAGE, f"--{flag.replace('_', '-')} is for {commands}")
    if arguments.kind == "tracing":
        from sandstream.cli.tracing_actor import serve_traces

        return serve_traces(arguments)
    if arguments.kind == "memory":
        from sandstream.cli.memory_actor import serve_memories

        return serve_memories(arguments)
    from sandstream.cli.session import run_async

    serve = _serve_sandboxes if arguments.kind == "sandbox" else _serve_harness
    return run_async(serve(arguments), debug=arguments.debug)


def _list(arguments: argparse.Namespace) -> int:
    from sandstream.cli.render import out
    from sandstream.cli.session import put_json, say

    for kind, meaning in _KINDS.items():
        if arguments.json:
            put_json({"kind": kind, "meaning": meaning})
        else:
            out().line(f"{kind:<10} {meaning}")
    say(_NOTE)
    return Exit.OK


async def _serve_harness(arguments: argparse.Namespace) -> int:
    from sandstream.cli.services import announce, harness, opened, ready_of, stopped_with_parent
    from sandstream.cli.session import say, stop_signals

    pipe: int | None = arguments.parent_pipe
    pool = arguments.pool or "main"
    async with (
        opened("sandstream-harness") as bus,
        harness(bus, pool, arguments.concurrency),
    ):
        stopped = stop_signals()
        if pipe is None:
            announce(
                ready_of(bus, pool=pool, replicas=1),
                as_json=arguments.json,
                title="harness is ready",
                hints=["start more of them, on any machine, to go faster"],
            )
        with stopped_with_parent(pipe, stopped):
            await stopped.wait()
        if pipe is None:
            say("stopping (once more: at once)")
    return Exit.OK


async def _serve_sandboxes(arguments: argparse.Namespace) -> int:
    from sandstream.cli.services import (
        announce,
        chosen_isolation,
        opened,
        ready_of,
        sandbox_actor,
    )
    from sandstream.cli.session import say, stop_signals
    from sandstream.sandbox_host import PROVIDERS

    if arguments.provider not in (None, *PROVIDERS):
        known = ", ".join(PROVIDERS)
        raise CliError(
            Exit.USAGE, f"there is no sandbox provider {arguments.provider!r}; known: {known}"
        )
    isolation = chosen_isolation(arguments.isolation)
    async with (
        opened("sandstream-sandbox") as bus,
        sandbox_actor(bus, isolation, arguments.concurrency) as replica,
    ):
        stopped = stop_signals()
        announce(
            ready_of(bus, node=replica.node, sandboxes=await replica.provider.check()),
            as_json=arguments.json,
            title=f"sandbox actor ({replica.provider.name}) is ready",
            hints=["look: sandstream sandboxes; they live on when it stops"],
        )
        await stopped.wait()
        say("stopping (once more: at once)")
    return Exit.OK
