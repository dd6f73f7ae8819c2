"""The parts of a handoff that need the user's code: callback, hook, and input filter."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_actors.run.state import RunState
from sandstream_actors.run.state_cache import States
from sandstream_bus.wire.messages import CallRequested, HandedOff, Rewrite
from sandstream_bus.wire.specs import AgentSpec

from sandstream._hosting import hooks
from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.run_view import RunView
from sandstream._surface.agent_graph import Circle, Reach, free_key, reach
from sandstream._surface.item_records import input_of, record_of
from sandstream._wire.compile import compile_graph, handoffs_of
from sandstream.agent import Agent
from sandstream.deployed_agent import DeployedAgent
from sandstream.exceptions import UserError
from sandstream.handoffs._invocation import invoke, rewritten
from sandstream.handoffs.handoff import Handoff
from sandstream.handoffs.history import nest_handoff_history
from sandstream.items import ItemHelpers, RunItem, ToolApprovalItem
from sandstream.run_config import RunConfig
from sandstream.usage import usage_of

logger = logging.getLogger(__name__)


async def hand_off(
    hosted: HostedRun, state: RunState, call: CallRequested, states: States
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


# --- agents that are new to the run ---------------------------------------------------------------


def _place(hosted: HostedRun, state: RunState, target: Agent[Any]) -> list[str]:
    """The keys of the target agent and of all agents that it can reach. Agents that only the user's
    code knew become part of the run.
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
    """Specs of agents that are not in the run's log yet."""
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
    """Does a filter or nesting change the history? A history that the server keeps cannot change.

    Raises:
        UserError: if there is a filter and the server keeps the conversation.
    """
    filters = handoff.input_filter is not None or config.handoff_input_filter is not None
    nests = handoff.nest_handoff_history
    if nests is None:
        nests = config.nest_handoff_history
    if not state.options.is_server_managed:
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
        return _key_of(hosted, agent) or agent.name  # the user's own item may name any agent

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
    """Is the input made by our own nesting? Only that is known to keep messages unchanged."""
    input_filter = handoff.input_filter or config.handoff_input_filter
    if input_filter is not None:
        return input_filter is nest_handoff_history
    return config.handoff_history_mapper is None


def _contained(items: Sequence[RunItem], new_input: list[Any]) -> set[int]:
    """The ids of items that are part of the input; each input item matches one item at most."""
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
