"""Moves a run to this process: its turns, its callables, its sandboxes."""

from __future__ import annotations

from typing import Any

from sandstream_actors.run.state import RunState
from sandstream_bus.logs.sandboxes import OWN_NODE

from sandstream._run.process import Process
from sandstream.run_config import RunConfig


def pool_for(config: RunConfig, process: Process) -> str:
    """The harness pool that takes the turns of this process's runs."""
    return config.harness_pool or process.settings.harness_pool or process.pool


def home_of(state: RunState) -> str:
    """The process that hosts the callables of a run's own agents."""
    assert state.started is not None
    graph = state.started.graph
    return state.places.host_of(graph.agents[graph.start].host)


async def bring_sandboxes(process: Process, config: RunConfig, state: RunState) -> None:
    """Bring the sandboxes of another process. Our own actor finds those on this machine again;
    those of another machine, which no actor serves any more, are restored from their checkpoint.
    """
    client: Any = config.sandbox.client if config.sandbox else None
    if client is None or state.started is None:
        return
    asked = [it.sandbox.spec.node for it in state.started.graph.agents.values() if it.sandbox]
    for node in {*asked, *(opened.node for opened in state.sandboxes.values())}:
        if node.startswith(OWN_NODE):
            # the run requests what it needs from now on after this state
            await process.adopt_node(await client.link.node(), node, state.last_seq + 1)
