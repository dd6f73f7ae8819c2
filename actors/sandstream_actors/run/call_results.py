"""The meaning of a call's outcome: its checked type, and the model's view of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw
from sandstream_bus.wire.calls import CALLS, CallKind
from sandstream_bus.wire.messages import CallFinished, ErrorInfo, History, RunStarted
from sandstream_bus.wire.specs import NO_JSON, ChildSpec

from sandstream_actors.run.output_items import ToolCall

if TYPE_CHECKING:
    from sandstream_actors.run.answer_calls import AnswerCalls

REJECTED = "Tool execution was not approved."
FAILED = "An error occurred while running the tool. Please try again."

_history = msgspec.json.Decoder(History).decode
_encode = msgspec.json.encode


def checked(event: CallFinished, kind: CallKind) -> CallFinished:
    """The result as the requested type. A result of the wrong type is a failure of its tool host,
    which may be written in any language.
    """
    if event.kind != kind:
        event = msgspec.structs.replace(event, kind=kind)
    if CALLS[kind].is_model:  # a success is a separate event: this can only be a failure
        info = ErrorInfo(code="bad_result", message=f"{event.call} ended without an answer")
        return msgspec.structs.replace(event, output=NO_JSON, error=event.error or info)
    shape = CALLS[kind].result
    if shape is None or not event.output:
        return event
    try:
        msgspec.json.decode(event.output, type=shape)
    except msgspec.DecodeError as error:
        message = f"the tool host's result of {event.call} has the wrong shape: {error}"
        info = ErrorInfo(code="bad_result", message=message)
        return msgspec.structs.replace(event, output=NO_JSON, error=info)
    return event


def history_of(output: Raw, input: list[Raw]) -> tuple[list[Raw], list[Raw], list[Raw]]:
    """The history before the run's input, the input, and the part that the session stores."""
    found = _history(output)
    own = input if found.input is None else found.input
    return found.history, own, own if found.kept is None else found.kept


def with_session(started: RunStarted | None, output: Raw) -> RunStarted | None:
    """The run's first event, with the id that its session has got meanwhile."""
    found = _history(output).session
    if started is None or started.options.session is None or not found:
        return started
    session = msgspec.structs.replace(started.options.session, id=found)
    options = msgspec.structs.replace(started.options, session=session)
    return msgspec.structs.replace(started, options=options)


def rejected_result(state: AnswerCalls, call: ToolCall) -> CallFinished | None:
    """The text that the model reads for a call that a person or a guardrail refused."""
    if state.reviewed is not None and call.id in state.reviewed.outputs:
        return _told(state, call, state.reviewed.outputs[call.id], "guardrail")
    decision = state.decision(call)
    assert decision is not None
    if decision.message is None and state.options.formats_rejections:
        formatted = state.results.get(f"{call.id}-reject")
        if formatted is None:
            return None
        return _told(state, call, formatted.output or Raw(_encode(REJECTED)), "rejected")
    text = REJECTED if decision.message is None else decision.message
    return _told(state, call, Raw(_encode(text)), "rejected")


def child_result(
    state: AnswerCalls, call: ToolCall, child: ChildSpec, ended: CallFinished
) -> CallFinished | None:
    """The text that the model reads for a child run that has ended."""
    end = child_end(state.results, child, ended)
    if end is None:
        return None
    ended = end
    if asks_host_for_output(child, ended):
        return state.results.get(f"{call.id}-output")
    if ended.error is not None and not ended.output:
        return _told(state, call, Raw(_encode(FAILED)), ended.error.code)
    return msgspec.structs.replace(ended, output=_as_text(ended.output), value=ended.output)


def child_end(
    results: Mapping[str, CallFinished], child: ChildSpec, ended: CallFinished
) -> CallFinished | None:
    """How a child run ended for its caller: as a failure if its watcher gave up; None until that is
    known.
    """
    if not child.watch:
        return ended
    watched = results.get(f"{ended.call}-watch")
    if watched is None or watched.error is None or ended.error is not None:
        return ended if watched is not None else None
    return msgspec.structs.replace(ended, output=NO_JSON, error=watched.error)


def listening_to(watch: str) -> str:
    """The call whose result says that the tool host listens to a child run. It is requested
    together with the watch.
    """
    return f"{watch.removesuffix('-watch')}-listening"


PARALLEL_GUARDS = "t1-guards"
"""The call of the guardrails that check a run's input beside the model call."""


def looking_at(guards: str) -> str:
    """The call whose result says that parallel guardrails did not answer at once."""
    return f"{guards}-looking"


def early_of(call: str) -> str:
    """The call whose early report this is; empty if it is not an early report."""
    if call.endswith("-listening"):
        return f"{call.removesuffix('-listening')}-watch"
    return call.removesuffix("-looking") if call.endswith("-looking") else ""


def is_watched(results: Mapping[str, CallFinished], call: str) -> bool:
    """Does the tool host listen to the child run of a call, or has it failed to?"""
    return f"{call}-listening" in results or f"{call}-watch" in results


def without_early(results: Mapping[str, CallFinished]) -> dict[str, CallFinished]:
    """The results that stay valid after a move: early reports of calls in progress do not."""
    return {call: it for call, it in results.items() if early_of(call) in {"", *results}}


def asks_host_for_output(child: ChildSpec, ended: CallFinished) -> bool:
    failed = ended.error is not None and not ended.output
    return child.failure == "host" if failed else child.output == "host"


def _as_text(output: Raw) -> Raw:
    value = msgspec.json.decode(output) if output else ""
    return output if isinstance(value, str) and output else Raw(_encode(_text(value, output)))


def _text(value: object, output: Raw) -> str:
    return value if isinstance(value, str) else bytes(output).decode()


def _told(state: AnswerCalls, call: ToolCall, output: Raw, code: str) -> CallFinished:
    text = msgspec.json.decode(output)
    return CallFinished(
        call=call.id,
        kind="tool",
        turn=state.turn,
        output=output,
        error=ErrorInfo(code=code, message=text if isinstance(text, str) else code),
    )
