"""What the outcome of a call means: its checked shape, and what the model reads of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw
from sandstream_bus.messages import (
    CallFinished,
    CallKind,
    ChildInput,
    ErrorInfo,
    HandedOff,
    History,
    Prepared,
    Reviewed,
    StopDecision,
)
from sandstream_bus.sandbox_messages import Opened
from sandstream_bus.specs import NO_JSON, ChildSpec

from sandstream_actors.output_items import ToolCall

if TYPE_CHECKING:
    from sandstream_actors.answer_calls import AnswerCalls

REJECTED = "Tool execution was not approved."
FAILED = "An error occurred while running the tool. Please try again."

_SHAPES: dict[CallKind, type[msgspec.Struct]] = {
    "prepare": Prepared,
    "stop": StopDecision,
    "output": StopDecision,
    "error": StopDecision,
    "open": Opened,
    "review": Reviewed,
    "handoff": HandedOff,
    "child_input": ChildInput,
    "history": History,
}
_history = msgspec.json.Decoder(History).decode
_encode = msgspec.json.encode


def checked(event: CallFinished, kind: CallKind) -> CallFinished:
    """The result as what was asked for. One of the wrong shape is a failure of its host, which may
    be written in any language.
    """
    if event.kind != kind:
        event = msgspec.structs.replace(event, kind=kind)
    if kind == "model":  # an answer is an event of its own: this can only be a failure
        info = ErrorInfo(code="bad_result", message=f"{event.call} ended without an answer")
        return msgspec.structs.replace(event, output=NO_JSON, error=event.error or info)
    shape = _SHAPES.get(kind)
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
    """What a model reads before the run's input, that input, and what the session keeps of it."""
    found = _history(output)
    own = input if found.input is None else found.input
    return found.history, own, own if found.kept is None else found.kept


def rejected_result(state: AnswerCalls, call: ToolCall) -> CallFinished | None:
    """What the model reads of a call that a person, or a guardrail before them, refused."""
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
    """What the model reads of a child run that has ended."""
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
    """How a child run ended for its caller: not well if its watcher had to give up; None until that
    is known.
    """
    if not child.watch:
        return ended
    watched = results.get(f"{ended.call}-watch")
    if watched is None or watched.error is None or ended.error is not None:
        return ended if watched is not None else None
    return msgspec.structs.replace(ended, output=NO_JSON, error=watched.error)


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
