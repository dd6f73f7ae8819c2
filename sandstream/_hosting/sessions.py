"""Reads and writes the user's session for a run.

A write is one call with one result. A write to a user's session and a write to the log are not
atomic together: if a result was lost, the end of the session is compared before the write is
repeated.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_actors.run.state import RunState
from sandstream_actors.run.state_cache import States
from sandstream_actors.tool_host.actor import TakenCall
from sandstream_bus.wire.messages import CallRequested, History

from sandstream._hosting.hosted_run import HostedRun
from sandstream._hosting.outcomes import encode
from sandstream.exceptions import UserError
from sandstream.items import TResponseInputItem
from sandstream.memory.openai_conversations_session import OpenAIConversationsSession
from sandstream.memory.session import Session, call_session, known_id, tell_id
from sandstream.memory.session_input import items_to_store, prepared_input
from sandstream.memory.session_settings import SessionSettings


async def history(
    hosted: HostedRun, state: RunState, call: CallRequested, states: States
) -> History:
    """The beginning of the model's input: the session's items and the run's input, or the
    callback's combination of both.
    """
    session = _session(hosted, state)
    use = state.options.session
    limit = use.limit if use is not None and use.kind == "host" else None
    if use is not None and use.kind == "bus":
        past = _decoded(state.history or [])
    else:
        window = {} if limit is None else {"limit": limit}
        past = await call_session(session, "get_items", wrapper=hosted.context, **window)
    prepared = await prepared_input(
        past,
        _decoded(state.input),
        hosted.config.session_input_callback,
        SessionSettings(limit=limit),
        reasoning_item_id_policy=hosted.config.reasoning_item_id_policy,
        from_conversations_api=isinstance(session, OpenAIConversationsSession),
    )
    whole, new = prepared.model_input, prepared.to_persist
    # noted before the first write: a process that continues the run finds the same session
    begun = known_id(session) if use is not None and not use.id else ""
    before = len(whole) - len(new)
    if before >= 0 and whole[before:] == new:
        return History(history=_encoded(whole[:before]), input=_encoded(new), session=begun)
    return History(history=_encoded(whole), input=[], kept=_encoded(new), session=begun)


async def save(hosted: HostedRun, state: RunState, call: TakenCall, states: States) -> None:
    """Append the run's input, or what a turn has added to it, to the session."""
    session = _session(hosted, state)
    upto = state.saving.get(call.call, 0)
    said = state.own_input if call.turn == 0 else state.said[state.session_has : upto]
    items = items_to_store(
        _decoded(said),
        reasoning_item_id_policy=hosted.config.reasoning_item_id_policy,
        for_conversations_api=isinstance(session, OpenAIConversationsSession),
    )
    may_be_there = call.again or state.moves > 0 or state.reopens > 0
    if not items or (may_be_there and await _ends_with(hosted, session, items)):
        return
    await call_session(session, "add_items", items, wrapper=hosted.context)


async def _ends_with(hosted: HostedRun, session: Session, items: list[TResponseInputItem]) -> bool:
    latest = await call_session(session, "get_items", wrapper=hosted.context, limit=len(items))
    return [_key(item) for item in latest] == [_key(item) for item in items]


def _key(item: Any) -> str:
    """Ids are left out: a provider's session assigns its own ids to items."""
    return json.dumps(
        {name: value for name, value in dict(item).items() if name not in ("id", "status")},
        sort_keys=True,
        default=str,
    )


def _session(hosted: HostedRun, state: RunState) -> Session:
    if hosted.session is None:
        raise UserError(
            "this run keeps its conversation in a session of the process that started it: pass "
            "the same session to go on with it"
        )
    tell_id(hosted.session, state.options.session)
    return hosted.session


def _decoded(items: Sequence[Raw]) -> list[Any]:
    return [msgspec.json.decode(item) for item in items]


def _encoded(items: Sequence[Any]) -> list[Raw]:
    return [encode(item) for item in items]
