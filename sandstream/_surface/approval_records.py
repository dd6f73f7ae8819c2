"""People's decisions on waiting calls, as a context and a saved state keep them.

A decision is for one call, or for all calls of a tool by an agent; the decision for one call takes
precedence. The last decision counts until it is sent; in the run's log the first one counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from sandstream.exceptions import ModelBehaviorError
from sandstream.items import ToolApprovalItem


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One decision."""

    agent: str
    tool: str
    call_id: str = ""
    run: str = ""
    """The run of the call; empty if the item did not name it."""
    approve: bool
    message: str | None = None
    always: bool = False


@dataclass
class Approvals:
    """All decisions so far."""

    calls: dict[tuple[str, str], Decision] = field(default_factory=dict)
    """By run and call id."""
    tools: dict[tuple[str, str], Decision] = field(default_factory=dict)
    """By agent and tool."""

    @classmethod
    def of(cls, decisions: Iterable[Decision]) -> Approvals:
        found = cls()
        for it in decisions:
            if it.always:
                found.tools[it.agent, it.tool] = it
            else:
                found.calls[it.run, it.call_id] = it
        return found

    @property
    def all(self) -> list[Decision]:
        return [*self.tools.values(), *self.calls.values()]

    def copy(self) -> Approvals:
        return Approvals(dict(self.calls), dict(self.tools))

    def decide(
        self, item: ToolApprovalItem, *, approve: bool, always: bool, message: str | None = None
    ) -> None:
        agent, tool = item.agent.name, item.tool_name or "unknown_tool"
        call_id = item.call_id or ""
        if not call_id and not always:
            raise ModelBehaviorError("an answer for one call needs the call's id")
        decision = Decision(
            agent=agent,
            tool=tool,
            call_id=call_id,
            run=item.run_id,
            approve=approve,
            message=message,
            always=always,
        )
        if not always:
            self.calls[item.run_id, call_id] = decision
            return
        self.tools[agent, tool] = decision
        self.calls = {
            key: it for key, it in self.calls.items() if (it.agent, it.tool) != (agent, tool)
        }

    def for_item(self, item: ToolApprovalItem) -> Decision | None:
        """The decision on this item, if there is one."""
        call_id = item.call_id or ""
        own = self.calls.get((item.run_id, call_id)) or self.calls.get(("", call_id))
        return own or self.tools.get((item.agent.name, item.tool_name or ""))

    def for_name(self, tool: str, call_id: str) -> Decision | None:
        """The decision on a tool's call, if it is unambiguous without the agent."""
        own = [it for (_, call), it in self.calls.items() if (call, it.tool) == (call_id, tool)]
        if own:
            return own[0] if len(own) == 1 else None
        sticky = [it for (_, name), it in self.tools.items() if name == tool]
        return sticky[0] if len(sticky) == 1 else None
