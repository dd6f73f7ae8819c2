"""The steps of a script: what the model answers, or how it fails, and when.

Owns the `Step` struct, its JSON form and the builders that users call. A step is immutable; every
option returns a changed copy, so one step may be used in several scripts. Knows nothing of HTTP or
of either API's wire format.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from sandstream.testing.journal import Request


class Text(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="text"):
    text: str


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="tool_call"):
    name: str
    arguments: dict[str, Any] | str
    """An object, or the exact text to send, which may be invalid JSON."""
    call_id: str | None = None

    @property
    def arguments_text(self) -> str:
        if isinstance(self.arguments, str):
            return self.arguments
        return msgspec.json.encode(self.arguments).decode()


class CustomToolCall(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="custom_tool_call"
):
    """A call of a custom tool: its input is text, not JSON. Responses API only."""

    name: str
    input: str
    call_id: str | None = None


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="refusal"):
    text: str


class Reasoning(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="reasoning"):
    text: str
    """The summary; empty for a model that does not reveal its reasoning."""


Item = Text | ToolCall | CustomToolCall | Refusal | Reasoning


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Token counts of one answer. Without it, the server estimates them from the text."""

    input_tokens: int = 0
    """Tokens of the input."""
    output_tokens: int = 0
    """Tokens of the output."""
    cached_tokens: int = 0
    """Tokens of the input that came from the prompt cache."""
    reasoning_tokens: int = 0
    """Tokens of the output that were reasoning."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="answer"):
    items: tuple[Item, ...] = ()
    usage: Usage | None = None
    status: Literal["completed", "failed", "incomplete"] = "completed"
    reason: str = ""
    """The error code of a failed answer, the reason of an incomplete one."""
    message: str = ""


class HttpError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="error"):
    status: int
    code: str | None = None
    message: str = ""
    kind: str = ""
    """OpenAI's `type`; derived from the status if empty."""
    retry_after_s: float | None = None


class Drop(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="drop"):
    after_bytes: int | None = None
    """Close the socket after this many bytes of the body; ``None``: before the head."""
    answer: Answer = Answer(items=(Text(text="This answer is cut off. " * 8),))


class Malformed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="malformed"):
    body: str


Action = Answer | HttpError | Drop | Malformed


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One answer or fault of the scripted model, with its options.

    Made by functions such as `text` and `tool_call`; its methods return changed copies.

    Example:
        text("It is sunny.").when("weather").after(0.5)
    """

    action: Action
    """The answer or the fault."""
    name: str = ""
    """A name for the journal and for error messages."""
    latency_s: float = 0.0
    """Seconds to wait before the answer begins."""
    contains: str = ""
    """Answer only requests whose text contains this."""
    predicate: Any = None
    """A `Callable[[Request], bool]`; in-process only, it has no JSON form."""
    repeat: int | None = 1
    """How often the step answers; ``None``: without limit."""
    pieces: int | None = None
    """In how many deltas a text or an arguments string is streamed; ``None``: one per word."""
    delta_delay_s: float = 0.0
    """Seconds to wait before each delta."""

    def after(self, latency_s: float) -> "Step":
        """Wait before the answer begins.

        Args:
            latency_s: How long, in seconds.

        Returns:
            The changed copy.
        """
        return msgspec.structs.replace(self, latency_s=latency_s)

    def when(self, condition: str | Callable[[Request], bool]) -> "Step":
        """Answer only some requests.

        Args:
            condition: A text that the request must contain, or a function that accepts it.

        Returns:
            The changed copy.
        """
        if isinstance(condition, str):
            return msgspec.structs.replace(self, contains=condition)
        return msgspec.structs.replace(self, predicate=condition)

    def times(self, count: int) -> "Step":
        """Answer several requests in a row instead of one.

        Args:
            count: How many.

        Returns:
            The changed copy.

        Raises:
            ValueError: `count` is below 1.
        """
        if count < 1:
            raise ValueError(f"times({count}): a step answers at least once; leave it out instead")
        return msgspec.structs.replace(self, repeat=count)

    def forever(self) -> "Step":
        """Answer any number of requests, including none."""
        return msgspec.structs.replace(self, repeat=None)

    def chunks(self, count: int | None = None, *, delta_delay_s: float = 0.0) -> "Step":
        """Stream each text in parts.

        Args:
            count: How many deltas; ``None`` is one for each word.
            delta_delay_s: Seconds to wait before each delta.

        Returns:
            The changed copy.
        """
        return msgspec.structs.replace(self, pieces=count, delta_delay_s=delta_delay_s)

    def named(self, name: str) -> "Step":
        """Give the step a name for the journal and for error messages.

        Args:
            name: The name.

        Returns:
            The changed copy.
        """
        return msgspec.structs.replace(self, name=name)

    @property
    def adds_answer(self) -> bool:
        """Whether the client adds it to the conversation; False for a fault."""
        action = self.action
        return isinstance(action, Answer) and action.status != "failed" and bool(action.items)

    def accepts(self, request: Request) -> bool:
        """Whether the step may answer a request.

        Args:
            request: The request.

        Returns:
            True if the conditions of `when` hold.
        """
        if self.contains and self.contains not in request.text:
            return False
        return self.predicate is None or bool(self.predicate(request))


def text(text: str) -> Step:
    """A plain text answer.

    Args:
        text: The text.

    Returns:
        The step.

    Example:
        ScriptedModel([text("It is sunny.")])
    """
    return Step(action=Answer(items=(Text(text=text),)))


def structured(value: Any) -> Step:
    """A text answer that is JSON.

    Args:
        value: Anything that msgspec encodes, or a Pydantic model.

    Returns:
        The step.

    Example:
        ScriptedModel([structured({"city": "Paris", "degrees": 21})])
    """
    return text(msgspec.json.encode(value, enc_hook=_dump_model).decode())


def tool_call(
    name: str, arguments: dict[str, Any] | str | None = None, *, call_id: str | None = None
) -> Step:
    """A call of one function tool.

    Args:
        name: The name of the tool.
        arguments: The arguments. A string is sent unchanged, valid JSON or not.
        call_id: The id of the call; ``None`` makes one.

    Returns:
        The step.

    Example:
        ScriptedModel([tool_call("get_weather", {"city": "Paris"}), text("It is sunny.")])
    """
    given = {} if arguments is None else arguments
    return Step(action=Answer(items=(ToolCall(name=name, arguments=given, call_id=call_id),)))


def custom_tool_call(name: str, input: str, *, call_id: str | None = None) -> Step:
    """A call of one custom (freeform) tool. Responses API only.

    Args:
        name: The name of the tool.
        input: The text for the tool.
        call_id: The id of the call; ``None`` makes one.

    Returns:
        The step.
    """
    return Step(action=Answer(items=(CustomToolCall(name=name, input=input, call_id=call_id),)))


def tool_calls(*calls: Step | tuple[str, dict[str, Any] | str]) -> Step:
    """Several calls in one answer.

    Args:
        *calls: Steps made by `tool_call`, or pairs of a name and arguments.

    Returns:
        The step.

    Example:
        tool_calls(("f", {"x": 1}), tool_call("g"))
    """
    return answer(*(call if isinstance(call, Step) else tool_call(*call) for call in calls))


def refusal(text: str) -> Step:
    """A refusal.

    Args:
        text: The words of the refusal.

    Returns:
        The step.
    """
    return Step(action=Answer(items=(Refusal(text=text),)))


def reasoning(summary: str = "") -> Step:
    """A reasoning item, to be combined with others.

    Args:
        summary: The summary; empty for a model that does not reveal its reasoning.

    Returns:
        The step.

    Example:
        answer(reasoning("The user asks for the weather."), text("It is sunny."))
    """
    return Step(action=Answer(items=(Reasoning(text=summary),)))


def answer(*parts: Step | str, usage: Usage | None = None) -> Step:
    """One answer of several items.

    Args:
        *parts: The items in order; a string stands for `text(...)`.
        usage: The tokens to report; ``None`` estimates them.

    Returns:
        The step.

    Raises:
        TypeError: A part is a fault.
    """
    return Step(action=Answer(items=_items(parts), usage=usage))


def status_failed(
    message: str = "The model failed.", *parts: Step | str, code: str = "server_error"
) -> Step:
    """HTTP 200 with status `failed`; HTTP 500 for Chat Completions, which has no such status.

    Args:
        message: The text of the error.
        *parts: Items that the answer has nevertheless.
        code: The code of the error.

    Returns:
        The step.
    """
    return Step(
        action=Answer(items=_items(parts), status="failed", reason=code, message=message),
    )


def incomplete(*parts: Step | str, reason: str = "max_output_tokens") -> Step:
    """An answer that was cut short.

    Args:
        *parts: The items so far.
        reason: `max_output_tokens` or `content_filter`.

    Returns:
        The step.
    """
    return Step(action=Answer(items=_items(parts), status="incomplete", reason=reason))


def error(
    status: int, *, code: str | None = None, message: str = "", retry_after: float | None = None
) -> Step:
    """An HTTP error with OpenAI's error JSON.

    Args:
        status: The HTTP status.
        code: The code of the error.
        message: The text of the error.
        retry_after: The header `Retry-After`, in seconds.

    Returns:
        The step.

    Example:
        ScriptedModel([error(429, retry_after=1), text("Now it works.")])
    """
    return Step(
        action=HttpError(status=status, code=code, message=message, retry_after_s=retry_after)
    )


def drop_connection(after_bytes: int | None = None, *, of: Step | None = None) -> Step:
    """Close the socket instead of answering.

    Args:
        after_bytes: After so many bytes of the body; ``None`` is before the first byte.
        of: The answer whose body is cut; ``None`` is a default text.

    Returns:
        The step.

    Raises:
        TypeError: `of` is a fault.
    """
    if of is None:
        return Step(action=Drop(after_bytes=after_bytes))
    if not isinstance(of.action, Answer):
        raise TypeError("drop_connection(of=...) takes an answer, not a fault")
    return msgspec.structs.replace(of, action=Drop(after_bytes=after_bytes, answer=of.action))


def malformed(body: str = '{"id": "resp_') -> Step:
    """HTTP 200 with a body that is not an answer.

    Args:
        body: The text of the body, or of the data of one event of a stream.

    Returns:
        The step.
    """
    return Step(action=Malformed(body=body))


def _items(parts: tuple[Step | str, ...]) -> tuple[Item, ...]:
    items: list[Item] = []
    for part in parts:
        action = text(part).action if isinstance(part, str) else part.action
        if not isinstance(action, Answer):
            raise TypeError(f"an answer cannot contain a fault: {action}")
        items.extend(action.items)
    return tuple(items)


def _dump_model(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"structured() cannot encode {type(value).__name__}")
    return dump(mode="json")
