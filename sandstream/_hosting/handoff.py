"""A handoff, as far as it is the user's code: callback, hook, and what the next agent reads."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_actors.run_state import RunState
from sandstream_actors.state_cache import StateCache
from sandstream_bus.messages import CallRequested, HandedOff, Rewrite
from sandstream_bus.specs import AgentSpec

from sandstream.agent import Agent
from sandstream.deployed_agent import DeployedAgent
from sandstream.exceptions import UserError
from sandstream.graph import compile_graph, handoffs_of
from sandstream.handoffs.handoff import Handoff
from sandstream.handoffs.history import nest_handoff_history
from sandstream.handoffs.taking import invoke, rewritten
from sandstream.hosting import hooks
from sandstream.hosting.hosted_run import HostedRun
from sandstream.item_records import input_of, record_of
from sandstream.items import ItemHelpers, RunItem, ToolApprovalItem
from sandstream.reach import Circle, Reach, free_key, reach
from sandstream.run_config import RunConfig
from sandstream.run_view import RunView, usage_of

logger = logging.getLogger(__name__)


async def hand_off(
    hosted: HostedRun, state: RunState, call: CallRequested, states: StateCache
) -> HandedOff:
    """Take the handoff that the model called."""
    source = hosted.agent(call.agent)
    handoff = _find(hosted.working_agent(call.agent), call.name)
    hosted.context.usage = usage_of(call.usage)
    target = await invoke(handoff, hosted.context, call.arguments)
    known = next((it.agent for it in state.agent.handoffs if it.name == call.name), "")
    is_known = bool(known) and target is handoff.agent
    keys = [known] if is_known else _place(hosted, state, target)
    await hooks.handoff(hosted.hooks, source.hooks, hosted.context, source, target)
    rewrite = None
    if _changes_history(handoff, hosted.config, state, source, target):
        view = hosted.view()
        view.read(await states.log.read(state.run))
        rewrite = await _rewrite(hosted, handoff, view, target)
    new = _specs(hosted, [key for key in keys if key not in state.agents], host=state.agent.host)
    return HandedOff(agent=keys[0], agents=new, rewrite=rewrite)


def _find(agent: Agent[Any], name: str) -> Handoff[Any, Any]:
    for handoff in handoffs_of(agent):
        if handoff.tool_name == name:
            return handoff
    raise UserError(f"agent {agent.name!r} has no handoff {name!r} in this process")


# --- agents that the run did not know -------------------------------------------------------------


def _place(hosted: HostedRun, state: RunState, target: Agent[Any]) -> list[str]:
    """The keys of the next agent and of all that it can reach. What only the user's code knew
    becomes part of the run.
    """
    reached = reach(target, hosted.config).own.agents.values()
    for agent in reached:
        if _key_of(hosted, agent) is not None:
            continue
        if isinstance(agent, DeployedAgent) or hasattr(agent, "capabilities"):
            kind = "deployed agent" if isinstance(agent, DeployedAgent) else "sandbox agent"
            raise UserError(
                f"the handoff leads to the {kind} {agent.name!r}, which the run does not know from "
                "its start: offer it with handoff(agent), or in Agent.handoffs"
            )
        taken = {**state.agents, **hosted.agents}
        # a new dict: other runs of a deployed agent share the old one
        hosted.agents = {**hosted.agents, free_key(agent.name, taken): agent}
    return [key for agent in reached if (key := _key_of(hosted, agent)) is not None]


def _key_of(hosted: HostedRun, agent: Agent[Any]) -> str | None:
    return next((key for key, known in hosted.agents.items() if known is agent), None)


def _specs(hosted: HostedRun, keys: list[str], *, host: str) -> dict[str, AgentSpec]:
    """Agents that the run's log does not have yet, as data."""
    if not keys:
        return {}
    children = hosted.found.children if hosted.found is not None else {}
    found = Reach(Circle(keys[0], hosted.agents, hosted.config), children)
    start = hosted.agents[keys[0]]
    graph = compile_graph(start, hosted.config, host=host, found=found, hooks=hosted.hooks)
    return {key: graph.agents[key] for key in keys}


# --- what the next agent reads --------------------------------------------------------------------


def _changes_history(
    handoff: Handoff[Any, Any],
    config: RunConfig,
    state: RunState,
    source: Agent[Any],
    target: Agent[Any],
) -> bool:
    """Is there a filter, or is the past folded? Neither is possible for a past that a server keeps.

    Raises:
        UserError: if there is a filter, and the conversation is the server's.
    """
    filters = handoff.input_filter is not None or config.handoff_input_filter is not None
    nests = handoff.nest_handoff_history
    if nests is None:
        nests = config.nest_handoff_history
    if not state.is_server_managed:
        return filters or nests
    if filters:
        raise UserError(
            f"The handoff {handoff.tool_name!r} has an input filter (its own, or that of the "
            "RunConfig), but the server keeps this conversation: it cannot be changed. Leave out "
            "the filter, or conversation_id, previous_response_id and auto_previous_response_id"
        )
    if nests:
        logger.warning(
            "the server keeps this conversation: nest_handoff_history has no effect",
            extra={"run_id": state.run, "agent": source.name, "next_agent": target.name},
        )
    return False


async def _rewrite(
    hosted: HostedRun, handoff: Handoff[Any, Any], view: RunView, target: Agent[Any]
) -> Rewrite | None:
    def key_of(agent: Agent[Any]) -> str:
        return _key_of(hosted, agent) or agent.name  # an item of the user's own may have any

    config = hosted.config
    before, model_before = view.items_before_answer
    given = view.given_input
    data = await rewritten(
        handoff,
        config.handoff_input_filter,
        config.nest_handoff_history,
        config.handoff_history_mapper,
        input_history=given if isinstance(given, str) else tuple(given),
        pre_items=tuple(model_before),
        new_items=(*view.items_since_answer, *view.handoff_items(target)),
        context=hosted.context,
    )
    if data is None:
        return None
    new_input = ItemHelpers.input_to_new_input_list(
        data.input_history if isinstance(data.input_history, str) else list(data.input_history)
    )
    produced = [*before, *data.new_items]
    folds = _is_folded(handoff, config)
    candidates = produced if folds else view.items_in_input
    in_input = _contained(candidates, new_input)
    model_items = data.new_items if data.input_items is None else data.input_items
    return Rewrite(
        input=[_encoded(item) for item in new_input],
        items=[record_of(item, key_of, in_input=id(item) in in_input) for item in produced],
        earlier=len(before),
        model_items=[_encoded(it) for it in input_of([*data.pre_handoff_items, *model_items])],
        is_text=isinstance(data.input_history, str),
    )


def _is_folded(handoff: Handoff[Any, Any], config: RunConfig) -> bool:
    """Does our own folding make the input? It keeps messages as they are; of what others make of
    them nothing is known.
    """
    input_filter = handoff.input_filter or config.handoff_input_filter
    if input_filter is not None:
        return input_filter is nest_handoff_history
    return config.handoff_history_mapper is None


def _contained(items: Sequence[RunItem], new_input: list[Any]) -> set[int]:
    """The items that are part of the input, each place in it counted once."""
    left = list(new_input)
    found: set[int] = set()
    for item in items:
        if isinstance(item, ToolApprovalItem):
            continue
        plain = {
            key: value
            for key, value in item.plain_item().items()
            if key != "status" or value is not None
        }
        if plain in left:
            left.remove(plain)
            found.add(id(item))
    return found


def _encoded(item: Any) -> Raw:
    return Raw(msgspec.json.encode(item))
