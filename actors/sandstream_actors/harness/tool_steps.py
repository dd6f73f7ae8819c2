"""The next message for each tool call of an answer. Pure.

A call goes through these steps: a person's approval, if needed; a hook before it, unless the tool
host makes the call; for an agent as a tool its input and a listener for its run; the call itself;
for an agent as a tool its output; a hook after it. Each step is one message and one result.
"""

from __future__ import annotations

import msgspec
from sandstream_bus.wire.calls import CALLS, CallKind
from sandstream_bus.wire.messages import ApprovalRequested, CallRequested, ErrorInfo
from sandstream_bus.wire.specs import ToolSpec
from sandstream_bus.wire.subjects import child_of

from sandstream_actors.run.call_results import asks_host_for_output, child_end, is_watched
from sandstream_actors.run.output_items import ToolCall
from sandstream_actors.run.state import RunState


class CallWork(msgspec.Struct, frozen=True):
    """The messages that can be sent now for the open calls of an answer."""

    calls: list[CallRequested] = []
    approvals: list[ApprovalRequested] = []
    new: int = 0
    """How many of the calls are tools that begin now."""
    in_progress: bool = False
    """At least one of the calls is in progress."""


def work_on(state: RunState, missing: list[ToolCall]) -> CallWork:
    """The next messages for calls without an outcome."""
    calls: list[CallRequested] = []
    approvals: list[ApprovalRequested] = []
    new = 0
    in_progress = False
    limit = state.options.max_tool_concurrency
    room = None if limit is None else max(1, limit) - _running(state, missing)
    # custom tools of one answer run one after the other: a patch may build on the one before
    waiting = [call for call in missing if call.is_custom][1:]
    for call in missing:
        if call in waiting:
            continue
        if state.gate(call) == "wait":
            if call.id not in state.requested:
                approvals.append(_approval(state, call))
            continue
        waits = state.child_waits.get(call.id)
        if waits is not None and waits.approvals and call.id in state.asked:
            continue  # after a move it is requested again, so that it moves too
        requests = _next_requests(state, call)
        begins = _begins(state, call, requests)
        if begins and room is not None:
            if room <= 0:
                in_progress = True  # it has to wait for the others
                continue
            room -= 1
        new += begins
        calls.extend(requests)
        in_progress = in_progress or not requests
    return CallWork(calls, approvals, new, in_progress)


def _begins(state: RunState, call: ToolCall, requests: list[CallRequested]) -> bool:
    """Does the call count towards the limit of concurrent calls?"""
    first = {call.id, f"{call.id}-watch"}
    return not _has_begun(state, call) and any(it.call in first for it in requests)


def _running(state: RunState, missing: list[ToolCall]) -> int:
    return sum(_has_begun(state, call) for call in missing)


def _has_begun(state: RunState, call: ToolCall) -> bool:
    return call.id in state.asked or f"{call.id}-watch" in state.asked


def _next_requests(state: RunState, call: ToolCall) -> list[CallRequested]:
    """The next message for the call; none while a step is in progress."""
    if state.gate(call) == "rejected":
        return _once(state, call, "reject", "reject")
    tool = state.tool(call.name)
    if state.has_outside_hook(tool, "tool_start") and f"{call.id}-start" not in state.results:
        return _once(state, call, "start", "hook", name="tool_start")
    child = tool.child if tool else None
    if child is not None and child.input == "host" and f"{call.id}-input" not in state.results:
        return _once(state, call, "input", "child_input")
    ended = state.results.get(call.id)
    if ended is None:
        if call.id in state.asked:
            return []
        request = tool_request(state, call, tool)
        if child is None or not child.watch:
            return [request]
        watch = _once(state, call, "watch", "watch")
        if not child.announced:
            return [*watch, request]
        # the child's model must not answer before the tool host listens to its deltas
        return [request] if is_watched(state.results, call.id) else watch
    asks_host = False
    if child is not None:
        end = child_end(state.results, child, ended)
        if end is None:
            return []
        asks_host = asks_host_for_output(child, end)
    if asks_host and f"{call.id}-output" not in state.results:
        return _once(state, call, "output", "child_output")
    if state.has_outside_hook(tool, "tool_end"):
        return _once(state, call, "end", "hook", name="tool_end")
    return []


def _once(
    state: RunState, call: ToolCall, suffix: str, kind: CallKind, name: str = ""
) -> list[CallRequested]:
    """The request for a step of a call, unless it was sent."""
    if f"{call.id}-{suffix}" in state.asked:
        return []
    return [
        CallRequested(
            call=f"{call.id}-{suffix}",
            kind=kind,
            turn=state.turn,
            agent=state.agent_name,
            name=name or call.name,
            call_id=call.call_id,
            arguments=call.arguments,
            reply_pool=state.pool,
            usage=state.usage,
            child=child_of(state.run, call.id) if CALLS[kind].names_child else "",
        )
    ]


def tool_request(state: RunState, call: ToolCall, tool: ToolSpec | None) -> CallRequested:
    is_child = tool is not None and tool.child is not None
    return CallRequested(
        call=call.id,
        kind="child" if is_child else "tool",
        turn=state.turn,
        agent=state.agent_name,
        name=call.name,
        call_id=call.call_id,
        arguments=call.arguments,
        at_most_once=tool.at_most_once if tool else False,
        reply_pool=state.pool,
        usage=state.usage,
        sandbox=state.sandbox_id(state.agent) if tool and tool.sandbox else "",
        cwd=state.agent.sandbox.cwd if state.agent.sandbox else "",
        user=state.agent.sandbox.user if state.agent.sandbox else "",
        child=child_of(state.run, call.id) if is_child else "",
    )


def _approval(state: RunState, call: ToolCall) -> ApprovalRequested:
    return ApprovalRequested(
        call=call.id,
        turn=state.turn,
        agent=state.agent_name,
        name=call.name,
        call_id=call.call_id,
        arguments=call.arguments,
        custom=call.is_custom,
        expires_s=state.options.approval_expires_s,
    )


def expired(state: RunState) -> ErrorInfo | None:
    """The error of an expired approval, if expiry fails the run."""
    if state.options.approval_expiry != "fail":
        return None
    for call, decision in state.decided.items():
        if decision.expired:
            name = state.requested[call].name
            message = f"the request for approval of {name} has expired"
            return ErrorInfo(code="approval_expired", message=message, data={"tool": name})
    return None


def plain_input(arguments: str) -> str | None:
    """The text input of an agent as a tool; None if the arguments do not contain one."""
    try:
        return msgspec.json.decode(arguments, type=_PlainInput).input
    except msgspec.DecodeError:
        return None


class _PlainInput(msgspec.Struct):
    input: str
