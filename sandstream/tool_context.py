"""The context of one tool call: the run's context plus the identity of the call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sandstream_actors.model.vendor_types import typed_item

from sandstream.run_context import RunContextWrapper, TContext
from sandstream.usage import Usage

__all__ = ["ToolContext"]


@dataclass(eq=False, init=False, kw_only=True)
class ToolContext(RunContextWrapper[TContext]):
    """Passed to a function tool. ``tool_call_id`` is the idempotency key of the call.

    A tool that is delivered at least once may see the same ``tool_call_id`` again after a crash;
    it is the right key for a payment, an insert or any other effect that must happen once.

    Args:
        context: The caller's own object, which the run carries along.
        usage: The run's tokens so far; ``None`` starts at zero.
        tool_name: The name by which the model called the tool.
        tool_call_id: The model's id of the call, the idempotency key of its effects.
        tool_arguments: The model's arguments as JSON text.
        tool_call: The model's call, as JSON or as an object of the vendor.
        tool_namespace: The group that the tool's name belongs to; ``None`` if it has no group.
        agent: The agent that calls the tool; ``None`` outside a run.
        run_config: The settings of the run; ``None`` outside a run.
        turn_input: The input items of the current turn.
        tool_input: The structured input of an agent that runs as a tool, else ``None``.

    Raises:
        ValueError: The name, the id or the arguments are missing.

    Example:
        @function_tool
        async def pay(context: ToolContext[Shop], amount_cents: int) -> str:
            receipt = await context.context.bank.pay(amount_cents, key=context.tool_call_id)
            return receipt.number
    """

    tool_name: str
    tool_call_id: str
    tool_arguments: str
    tool_namespace: str | None
    agent: Any | None
    run_config: Any | None

    def __init__(
        self,
        context: TContext,
        usage: Usage | None = None,
        tool_name: str | None = None,
        tool_call_id: str | None = None,
        tool_arguments: str | None = None,
        tool_call: Any | None = None,
        *,
        tool_namespace: str | None = None,
        agent: Any | None = None,
        run_config: Any | None = None,
        turn_input: list[Any] | None = None,
        tool_input: Any | None = None,
    ) -> None:
        super().__init__(
            context=context,
            usage=Usage() if usage is None else usage,
            turn_input=[] if turn_input is None else turn_input,
            tool_input=tool_input,
        )
        self.tool_name = _required("tool_name", tool_name)
        self.tool_call_id = _required("tool_call_id", tool_call_id)
        self.tool_arguments = _required("tool_arguments", tool_arguments)
        self._tool_call = tool_call
        self.tool_namespace = tool_namespace
        self.agent = agent
        self.run_config = run_config
        self._failure: Exception | None = None  # the model is told about it, and the run continues

    @cached_property
    def tool_call(self) -> Any | None:
        """The model's call in the vendor's type, converted on first access."""
        return typed_item(self._tool_call)

    @property
    def qualified_tool_name(self) -> str:
        """The tool's name, prefixed with its namespace if it has one."""
        if self.tool_namespace:
            return f"{self.tool_namespace}.{self.tool_name}"
        return self.tool_name

    @classmethod
    def from_agent_context(
        cls,
        context: RunContextWrapper[TContext],
        tool_call_id: str,
        tool_call: Any | None = None,
        agent: Any | None = None,
        *,
        tool_name: str | None = None,
        tool_arguments: str | None = None,
        tool_namespace: str | None = None,
        run_config: Any | None = None,
    ) -> ToolContext[TContext]:
        """Derive the context of one call from a run's context; both share the usage total.

        Args:
            context: The context of the run.
            tool_call_id: The model's id of the call.
            tool_call: The model's call, as JSON or as an object of the vendor.
            agent: The agent that calls the tool; ``None`` takes it from ``context``.
            tool_name: The name of the tool; ``None`` takes it from the call.
            tool_arguments: The arguments as JSON text; ``None`` takes them from the call.
            tool_namespace: The group that the tool's name belongs to; ``None`` takes it from the
                call.
            run_config: The settings of the run; ``None`` takes them from ``context``.
        """
        return cls(
            context=context.context,
            usage=context.usage,
            tool_name=tool_name if tool_name is not None else _of_call(tool_call, "name"),
            tool_call_id=tool_call_id,
            tool_arguments=(
                tool_arguments if tool_arguments is not None else _of_call(tool_call, "arguments")
            ),
            tool_call=tool_call,
            tool_namespace=(
                tool_namespace if tool_namespace is not None else _of_call(tool_call, "namespace")
            ),
            agent=agent if agent is not None else getattr(context, "agent", None),
            run_config=run_config
            if run_config is not None
            else getattr(context, "run_config", None),
            turn_input=context.turn_input,
            tool_input=context.tool_input,
        )


def _required(name: str, value: str | None) -> str:
    if value is None:
        raise ValueError(f"{name} must be passed to ToolContext")
    return value


def _of_call(tool_call: Any, name: str) -> str | None:
    value = tool_call.get(name) if isinstance(tool_call, dict) else getattr(tool_call, name, None)
    return value if isinstance(value, str) else None
