"""Handoffs: another agent, offered to a model as a tool that passes the conversation to it.

Contains the declaration (``Handoff``, ``handoff``) and the data that a filter may change. See
``_invocation.py`` for carrying a handoff out, and ``history.py`` for nesting the history.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, overload

from sandstream_bus.counts import numbered
from sandstream_bus.environment import shows_model_data, shows_tool_data
from sandstream_bus.wire.error_text import error_text
from typing_extensions import TypeVar

from sandstream.exceptions import ModelBehaviorError, UserError
from sandstream.items import RunItem, TResponseInputItem
from sandstream.run_context import RunContextWrapper, TContext
from sandstream.strict_schema import ensure_strict_json_schema

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from sandstream.agent import Agent

__all__ = [
    "Handoff",
    "HandoffHistoryMapper",
    "HandoffInputData",
    "HandoffInputFilter",
    "handoff",
]

logger = logging.getLogger(__name__)

THandoffInput = TypeVar("THandoffInput", default=Any)
TAgent = TypeVar("TAgent", default="Agent[Any]")

OnHandoffWithInput = Callable[[RunContextWrapper[Any], THandoffInput], Any]
OnHandoffWithoutInput = Callable[[RunContextWrapper[Any]], Any]
Decision: TypeAlias = "Callable[[RunContextWrapper[Any], Agent[Any]], bool | Awaitable[bool]]"
IsEnabled: TypeAlias = "bool | Decision"


@dataclass(frozen=True)
class HandoffInputData:
    """The conversation at a handoff, in three parts; a filter returns a changed copy.

    Example:
        def only_this_turn(data: HandoffInputData) -> HandoffInputData:
            return data.clone(input_history=(), pre_handoff_items=())


        support = handoff(support_agent, input_filter=only_this_turn)
    """

    input_history: str | tuple[TResponseInputItem, ...]
    """The input of the run: the caller's, or the result of an earlier handoff."""
    pre_handoff_items: tuple[RunItem, ...]
    """The items that the run produced before the turn of this handoff."""
    new_items: tuple[RunItem, ...]
    """The items of this turn, including the handoff's call and its output."""
    run_context: RunContextWrapper[Any] | None = None
    """The context of the run."""
    input_items: tuple[RunItem, ...] | None = None
    """If set, the next agent's model gets these instead of ``new_items``, which still go to the
    result and to a session."""

    def clone(self, **kwargs: Any) -> HandoffInputData:
        """A copy with some fields changed.

        Args:
            **kwargs: New values of fields, by their names.

        Returns:
            The copy.

        Example:
            shorter = data.clone(input_items=data.new_items[-1:])
        """
        return dataclasses.replace(self, **kwargs)


HandoffInputFilter: TypeAlias = Callable[
    [HandoffInputData], HandoffInputData | Awaitable[HandoffInputData]
]
"""Decides what the next agent sees."""

HandoffHistoryMapper: TypeAlias = Callable[[list[TResponseInputItem]], list[TResponseInputItem]]
"""Makes the next agent's whole input from the conversation so far."""


@dataclass
class Handoff(Generic[TContext, TAgent]):
    """An agent that a model can pass the conversation to. Usually made by ``handoff()``."""

    tool_name: str
    """The name of the tool that the model calls."""
    tool_description: str
    """The description of the tool for the model."""
    input_json_schema: dict[str, Any]
    """The schema of the call's arguments. They go to ``on_invoke_handoff``, not to the agent."""
    on_invoke_handoff: Callable[[RunContextWrapper[Any], str], Awaitable[TAgent]]
    """Called with the context and the model's arguments as JSON text; returns the next agent."""
    agent_name: str
    """The name of the next agent."""
    input_filter: HandoffInputFilter | None = None
    """Changes what the next agent sees; ``None``: the run's filter, if any."""
    nest_handoff_history: bool | None = None
    """Whether earlier turns are nested in a summary; ``None``: the run's setting."""
    strict_json_schema: bool = True
    """Whether the model must follow ``input_json_schema`` strictly."""
    is_enabled: IsEnabled = True
    """Whether the model sees the handoff: a bool, or decided each turn by ``(context, agent)``."""

    @property
    def agent(self) -> Agent[Any] | None:
        """The next agent if it is known before the call, as with ``handoff()``."""
        invoke = self.on_invoke_handoff
        return invoke.agent if isinstance(invoke, _Invoker) else None

    @property
    def has_callback(self) -> bool:
        """Does user code take part: a callback, its own function, or an input to check?"""
        invoke = self.on_invoke_handoff
        return not isinstance(invoke, _Invoker) or invoke.has_callback

    def get_transfer_message(self, agent: Agent[Any]) -> str:
        """The output of the handoff's call.

        Args:
            agent: The agent that continues the run.
        """
        return json.dumps({"assistant": agent.name})

    @classmethod
    def default_tool_name(cls, agent: Agent[Any]) -> str:
        """``transfer_to_`` and the agent's name as a valid function name.

        Args:
            agent: The agent that would continue the run.
        """
        wanted = f"transfer_to_{agent.name}"
        without_blanks = re.sub(r"\s", "_", wanted)
        name = re.sub(r"[^a-zA-Z0-9_]", "_", without_blanks)
        if name != without_blanks:
            logger.warning(
                "An agent's name has characters that a tool's name cannot have; they were "
                "replaced. Set tool_name_override if two agents get the same name",
                extra={"agent": agent.name, "tool": name.lower()},
            )
        return name.lower()

    @classmethod
    def default_tool_description(cls, agent: Agent[Any]) -> str:
        """The description of a handoff to this agent, for the model.

        Args:
            agent: The agent that would continue the run. Its ``handoff_description`` is part of the
                text.
        """
        what_for = agent.handoff_description or ""
        return f"Handoff to the {agent.name} agent to handle the request. {what_for}"


@overload
def handoff(
    agent: Agent[TContext],
    *,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    input_filter: HandoffInputFilter | None = None,
    nest_handoff_history: bool | None = None,
    is_enabled: IsEnabled = True,
) -> Handoff[TContext, Agent[TContext]]: ...


@overload
def handoff(
    agent: Agent[TContext],
    *,
    on_handoff: OnHandoffWithInput[THandoffInput],
    input_type: type[THandoffInput],
    tool_description_override: str | None = None,
    tool_name_override: str | None = None,
    input_filter: HandoffInputFilter | None = None,
    nest_handoff_history: bool | None = None,
    is_enabled: IsEnabled = True,
) -> Handoff[TContext, Agent[TContext]]: ...


@overload
def handoff(
    agent: Agent[TContext],
    *,
    on_handoff: OnHandoffWithoutInput,
    tool_description_override: str | None = None,
    tool_name_override: str | None = None,
    input_filter: HandoffInputFilter | None = None,
    nest_handoff_history: bool | None = None,
    is_enabled: IsEnabled = True,
) -> Handoff[TContext, Agent[TContext]]: ...


def handoff(
    agent: Agent[TContext],
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    on_handoff: OnHandoffWithInput[THandoffInput] | OnHandoffWithoutInput | None = None,
    input_type: type[THandoffInput] | None = None,
    input_filter: HandoffInputFilter | None = None,
    nest_handoff_history: bool | None = None,
    is_enabled: IsEnabled = True,
) -> Handoff[TContext, Agent[TContext]]:
    """Offer an agent as a handoff, with a name, a callback or a filter of your choice.

    Args:
        agent: The agent that continues the run.
        tool_name_override: The name of the tool for the model, instead of ``transfer_to_<agent>``.
        tool_description_override: The description for the model, instead of the default one.
        on_handoff: Called with the context when the model chooses the handoff; with ``input_type``
            also with the model's value. Sync or async.
        input_type: The type of a value that the model must pass to ``on_handoff``. The next agent
            sees it only as part of the conversation.
        input_filter: Changes what the next agent sees; ``None`` uses the filter of the run.
        nest_handoff_history: Whether the next agent gets earlier turns as one summary; ``None``
            uses the setting of the run.
        is_enabled: Whether the model sees the handoff: a bool, or a function of the context and the
            agent that decides it in each turn.

    Returns:
        The handoff, for ``Agent.handoffs``.

    Raises:
        TypeError: ``agent`` is not an :class:`Agent`.
        UserError: ``on_handoff`` is missing or takes a different number of arguments, or
            ``input_type`` has no strict JSON schema.

    Example:
        def log(context: RunContextWrapper[Any]) -> None:
            print("billing takes over")


        triage = Agent(name="Triage", handoffs=[handoff(billing, on_handoff=log)])
    """
    from sandstream.agent import Agent

    if not isinstance(agent, Agent):
        raise TypeError(f"handoff() needs an Agent to hand off to, not {agent!r}")
    where = f"Handoff to {agent.name!r}:"
    _check_callback(on_handoff, where, with_input=input_type is not None)
    reader, schema = None, ensure_strict_json_schema({})
    if input_type is not None:
        reader, schema = _reader_and_schema(input_type, where)
    return Handoff(
        tool_name=tool_name_override or Handoff.default_tool_name(agent),
        tool_description=tool_description_override or Handoff.default_tool_description(agent),
        input_json_schema=schema,
        on_invoke_handoff=_Invoker(agent, on_handoff, reader),
        agent_name=agent.name,
        input_filter=input_filter,
        nest_handoff_history=nest_handoff_history,
        is_enabled=is_enabled if isinstance(is_enabled, bool) else _always_async(is_enabled),
    )


def _check_callback(on_handoff: Any, where: str, *, with_input: bool) -> None:
    wanted = "(context, input)" if with_input else "(context)"
    if on_handoff is None:
        if with_input:
            raise UserError(
                f"{where} input_type needs on_handoff, which receives that input: a function of "
                f"{wanted}."
            )
        return
    if not callable(on_handoff):
        raise UserError(f"{where} on_handoff must be a function of {wanted}, not {on_handoff!r}.")
    count = len(inspect.signature(on_handoff).parameters)
    if count != (2 if with_input else 1):
        taken = numbered(count, "argument")
        reason = "because input_type is set" if with_input else "because input_type is not set"
        raise UserError(f"{where} on_handoff must take {wanted}, {reason}, but it takes {taken}.")


def _reader_and_schema(input_type: Any, where: str) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        reader = TypeAdapter(input_type)
        return reader, ensure_strict_json_schema(reader.json_schema())
    except PydanticUserError as error:
        first_line = error_text(error).splitlines()[0]
        raise UserError(
            f"{where} JSON cannot describe the input_type {input_type!r}. {first_line} Use plain "
            "types, a pydantic model, a dataclass or a TypedDict."
        ) from error
    except UserError as error:
        raise UserError(f"{where} input_type has no strict JSON schema. {error}") from error


def _always_async(
    decide: Decision,
) -> Callable[[RunContextWrapper[Any], Agent[Any]], Awaitable[bool]]:
    async def decided(context: RunContextWrapper[Any], agent: Agent[Any]) -> bool:
        answer = decide(context, agent)
        return bool(await answer if inspect.isawaitable(answer) else answer)

    return decided


class _Invoker:
    """``on_invoke_handoff`` for ``handoff()``: calls the callback and returns the fixed agent."""

    def __init__(
        self,
        agent: Agent[Any],
        on_handoff: Callable[..., Any] | None,
        reader: TypeAdapter[Any] | None,
    ) -> None:
        self.agent = agent
        self.has_callback = on_handoff is not None
        self._on_handoff = on_handoff
        self._reader = reader

    async def __call__(
        self, context: RunContextWrapper[Any], input_json: str | None = None
    ) -> Agent[Any]:
        if self._on_handoff is not None:
            arguments = [] if self._reader is None else [self._read(self._reader, input_json)]
            result = self._on_handoff(context, *arguments)
            if inspect.isawaitable(result):
                await result
        return self.agent

    def _read(self, reader: TypeAdapter[Any], input_json: str | None) -> Any:
        what = f"the handoff to {self.agent.name}"
        if input_json is None:
            raise ModelBehaviorError(f"The model passed no input to {what}, which needs one")
        try:
            return reader.validate_json(input_json, strict=True)
        except ValueError as error:
            details = f": {error_text(error)}" if _shows_data() else ""
            raise ModelBehaviorError(f"Invalid JSON input for {what}{details}") from None


def _shows_data() -> bool:
    """The input of a handoff is both the model's data and a tool's."""
    return shows_model_data() and shows_tool_data()
