"""The object that carries the user's context through a run."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from sandstream.exceptions import ModelBehaviorError
from sandstream.usage import Usage

if TYPE_CHECKING:
    from sandstream._surface.approval_records import Approvals, Decision
    from sandstream.items import ToolApprovalItem

__all__ = ["AgentHookContext", "RunContextWrapper", "TContext"]

TContext = TypeVar("TContext", default=Any)


@dataclass(eq=False)
class RunContextWrapper(Generic[TContext]):
    """The user's own ``context`` object, with the run's data about itself.

    Tools, hooks, guardrails and dynamic instructions receive it. The context is never shown to
    the model. It lives in the process that hosts the user's Python and does not cross the bus.

    Example:
        @function_tool
        def whoami(wrapper: RunContextWrapper[Customer]) -> str:
            return wrapper.context.name


        result = await Runner.run(agent, "Who am I?", context=Customer(name="Ann"))
    """

    context: TContext
    """The value of ``Runner.run(context=...)``, or ``None``."""

    usage: Usage = field(default_factory=Usage)
    """Tokens used by the run so far."""

    turn_input: list[Any] = field(default_factory=list)
    """The input items of the current turn."""

    tool_input: Any | None = None
    """The structured input of an agent that runs as a tool, else ``None``."""

    _approvals: Approvals | None = field(default=None, init=False, repr=False)

    @property
    def approvals(self) -> Approvals:
        """People's decisions on waiting calls."""
        if self._approvals is None:
            from sandstream._surface.approval_records import Approvals

            self._approvals = Approvals()
        return self._approvals

    def _set_approvals(self, approvals: Approvals) -> None:
        """Replace the decisions on calls that wait for approval."""
        self._approvals = approvals

    def copied(self) -> RunContextWrapper[TContext]:
        """A copy for a saved state: later changes to it do not affect this one."""
        made = RunContextWrapper(self.context, tool_input=self.tool_input)
        made.usage = copy.deepcopy(self.usage)
        made.turn_input = list(self.turn_input)
        made._set_approvals(self.approvals.copy())
        return made

    def approve_tool(self, approval_item: ToolApprovalItem, always_approve: bool = False) -> None:
        """Allow a call that waits for a person.

        Args:
            approval_item: The waiting call, from ``result.interruptions``.
            always_approve: Also allow all later calls of this tool by this agent.
        """
        self.approvals.decide(approval_item, approve=True, always=always_approve)

    def reject_tool(
        self,
        approval_item: ToolApprovalItem,
        always_reject: bool = False,
        rejection_message: str | None = None,
    ) -> None:
        """Refuse a call that waits for a person.

        Args:
            approval_item: The waiting call, from ``result.interruptions``.
            always_reject: Also refuse all later calls of this tool by this agent.
            rejection_message: The text for the model; ``None`` is a default text.
        """
        self.approvals.decide(
            approval_item, approve=False, always=always_reject, message=rejection_message
        )

    def is_tool_approved(self, tool_name: str, call_id: str) -> bool | None:
        """Whether a call is approved.

        Args:
            tool_name: The name of the tool.
            call_id: The model's id of the call.

        Returns:
            The decision; ``None`` if there is none yet.
        """
        found = self.approvals.for_name(tool_name, call_id)
        return None if found is None else found.approve

    def get_approval_status(
        self,
        tool_name: str,
        call_id: str,
        *,
        tool_namespace: str | None = None,
        existing_pending: ToolApprovalItem | None = None,
        tool_lookup_key: Any | None = None,
        current_invocation: ToolApprovalItem | None = None,
    ) -> bool | None:
        """Like :meth:`is_tool_approved`, for the call of an item if one is given.

        Args:
            tool_name: The name of the tool.
            call_id: The model's id of the call.
            tool_namespace: Accepted for compatibility; the call's id is enough to find the
                decision.
            existing_pending: The waiting call, if the caller has its item.
            tool_lookup_key: Accepted for compatibility, and ignored.
            current_invocation: The item of the call that is about to be made; it wins over
                ``existing_pending``.

        Returns:
            The decision; ``None`` if there is none yet.

        Raises:
            ModelBehaviorError: The call has no id.
        """
        if not isinstance(call_id, str) or not call_id:
            raise ModelBehaviorError("a call that waits for a person needs an id")
        found = self._decision(tool_name, call_id, current_invocation or existing_pending)
        return None if found is None else found.approve

    def get_rejection_message(
        self,
        tool_name: str,
        call_id: str,
        *,
        tool_namespace: str | None = None,
        existing_pending: ToolApprovalItem | None = None,
        tool_lookup_key: Any | None = None,
    ) -> str | None:
        """The message for the model from the person who refused a call.

        Args:
            tool_name: The name of the tool.
            call_id: The model's id of the call.
            tool_namespace: Accepted for compatibility; the call's id is enough to find the
                decision.
            existing_pending: The waiting call, if the caller has its item.
            tool_lookup_key: Accepted for compatibility, and ignored.

        Returns:
            The text; ``None`` if the call was not refused, or without a message.
        """
        found = self._decision(tool_name, call_id, existing_pending)
        return None if found is None or found.approve else found.message

    def _decision(
        self, tool_name: str, call_id: str, item: ToolApprovalItem | None
    ) -> Decision | None:
        if item is not None:
            return self.approvals.for_item(item)
        return self.approvals.for_name(tool_name, call_id)


@dataclass(eq=False)
class AgentHookContext(RunContextWrapper[TContext]):
    """The context of hooks at the start and at the end of an agent."""
