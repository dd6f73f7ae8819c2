"""A run's settings and input in the form that crosses the bus. Checked here, before any effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw
from sandstream_actors.run.budgets import with_deadline
from sandstream_bus.wire.error_text import error_text
from sandstream_bus.wire.specs import RunOptions, SessionUse

from sandstream.agent import Agent
from sandstream.error_handlers import RunErrorHandlers
from sandstream.exceptions import UserError
from sandstream.memory.bus_session import BusSession
from sandstream.memory.session import known_id
from sandstream.memory.session_settings import SessionSettings
from sandstream.models.defaults import current_defaults
from sandstream.run_config import RunConfig
from sandstream.tracing._runs.settings import is_traced

_NEEDED = ("get_items", "add_items")


def compile_options(
    config: RunConfig,
    *,
    max_turns: int | None,
    stream: bool = False,
    error_handlers: RunErrorHandlers | None = None,
    previous_response_id: str | None = None,
    conversation_id: str | None = None,
    auto_previous_response_id: bool = False,
    session: Any | None = None,
) -> RunOptions:
    """Run settings as data."""
    if max_turns is not None and (not isinstance(max_turns, int) or max_turns < 0):
        raise UserError(f"max_turns must be None or a number of turns; it is {max_turns!r}")
    if previous_response_id and conversation_id:
        raise UserError("give previous_response_id or conversation_id, not both")
    if auto_previous_response_id and conversation_id:
        raise UserError("give auto_previous_response_id or conversation_id, not both")
    if session is not None and (
        previous_response_id or conversation_id or auto_previous_response_id
    ):
        raise UserError(
            "a session keeps the conversation itself: give no conversation_id, "
            "previous_response_id or auto_previous_response_id with it"
        )
    execution = config.tool_execution
    return RunOptions(
        max_turns=max_turns,
        stream=stream,
        filters_input=config.call_model_input_filter is not None,
        handled_errors=sorted(name for name, handler in (error_handlers or {}).items() if handler),
        tool_not_found=config.tool_not_found_behavior,
        max_tool_concurrency=execution.max_function_tool_concurrency if execution else None,
        previous_response_id=previous_response_id,
        conversation_id=conversation_id,
        auto_previous_response_id=auto_previous_response_id,
        reasoning_ids=config.reasoning_item_id_policy,
        workflow_name=config.workflow_name,
        group_id=config.group_id,
        metadata=config.trace_metadata or {},
        traced=is_traced(config),
        trace_contents=config.trace_include_sensitive_data,
        budget=config.budget,
        session=session_use(session, config) if session is not None else None,
        approval_expires_s=config.approval_expires_s,
        approval_expiry=config.approval_expiry,
        formats_rejections=config.tool_error_formatter is not None,
        pre_approval_guardrails=bool(execution and execution.pre_approval_tool_input_guardrails),
    )


def check_guarded_conversation(agent: Agent[Any], config: RunConfig, options: RunOptions) -> None:
    """Refuse output guardrails in a conversation that the model's endpoint keeps.

    Chat Completions never keeps a conversation, so it is allowed.

    Raises:
        UserError: because the refused output would stay in that conversation.
    """
    is_kept = bool(
        options.conversation_id or options.previous_response_id or options.auto_previous_response_id
    )
    if not is_kept or not (agent.output_guardrails or config.output_guardrails):
        return
    model = config.model if config.model is not None else agent.model
    api = getattr(model, "api", None) or current_defaults().api
    if api != "chat":
        raise UserError(
            "Output guardrails cannot be combined with conversation_id, previous_response_id, or "
            "auto_previous_response_id: what they refuse would stay in the conversation that the "
            "endpoint keeps"
        )


def started_now(options: RunOptions) -> RunOptions:
    """The options of a run that starts now: its time budget begins here."""
    if options.budget is None:
        return options
    return msgspec.structs.replace(options, budget=with_deadline(options.budget))


def session_use(session: Any, config: RunConfig) -> SessionUse:
    """A session for the harness. Any object with ``get_items`` and ``add_items`` is accepted."""
    missing = [it for it in _NEEDED if not callable(getattr(session, it, None))]
    if missing:
        raise UserError(
            f"session must be a Session; a {type(session).__name__} has no {' and '.join(missing)}"
        )
    own = SessionSettings.coerce(getattr(session, "session_settings", None))
    settings = own.resolve(config.session_settings)
    if isinstance(session, BusSession):
        return SessionUse(
            id=session.session_id,
            kind="bus",
            busy=session.busy,
            limit=settings.limit,
            merges=config.session_input_callback is not None,
        )
    return SessionUse(id=known_id(session), kind="host", limit=settings.limit, merges=True)


def compile_input(input: Any) -> list[Raw]:
    """A user's input as raw items."""
    if isinstance(input, str):
        return [Raw(msgspec.json.encode({"content": input, "role": "user"}))]
    if not isinstance(input, list | tuple):
        raise UserError(
            f"input must be a string or a list of input items, not {type(input).__name__}"
        )
    from sandstream_actors.model.vendor_types import plain

    items: list[Raw] = []
    for index, item in enumerate(input):
        value = plain(item)
        if not isinstance(value, Mapping):
            raise UserError(f"input[{index}] must be an item (a dict), not {type(item).__name__}")
        try:
            items.append(Raw(msgspec.json.encode(value)))
        except TypeError as error:
            raise UserError(f"input[{index}] is not JSON: {error_text(error)}") from None
    return items
