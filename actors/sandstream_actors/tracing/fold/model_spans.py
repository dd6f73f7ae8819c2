"""Attributes of model call spans."""

from __future__ import annotations

import msgspec
from sandstream_bus.logs.codec import NOT_JSON
from sandstream_bus.wire.messages import ErrorInfo, ModelAnswered, TokenUsage
from sandstream_bus.wire.specs import AgentSpec

from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.fold.times import MS
from sandstream_actors.tracing.span import Attributes, Span, SpanEvent

_SETTINGS = {
    "temperature": semconv.REQUEST_TEMPERATURE,
    "top_p": semconv.REQUEST_TOP_P,
    "max_tokens": semconv.REQUEST_MAX_TOKENS,
    "frequency_penalty": semconv.REQUEST_FREQUENCY_PENALTY,
    "presence_penalty": semconv.REQUEST_PRESENCE_PENALTY,
}


class _Part(msgspec.Struct):
    type: str = ""


class _Item(msgspec.Struct):
    """The fields of an item that show why the model stopped."""

    type: str = ""
    status: str = ""
    content: list[_Part] = []


_item = msgspec.json.Decoder(_Item).decode


def model_of(agent: AgentSpec | None) -> str:
    return agent.model if agent is not None else ""


def chat_name(model: str) -> str:
    return f"{semconv.CHAT} {model}".rstrip()


def request_attributes(agent: AgentSpec | None, *, stream: bool) -> Attributes:
    """The attributes that are known before the answer."""
    attributes: Attributes = {
        semconv.OPERATION_NAME: semconv.CHAT,
        semconv.PROVIDER_NAME: provider_of(agent),
        semconv.REQUEST_STREAM: stream,
        semconv.OUTPUT_TYPE: "json" if agent is not None and agent.output is not None else "text",
    }
    if agent is None:
        return attributes
    if agent.model:
        attributes[semconv.REQUEST_MODEL] = agent.model
    for setting, name in _SETTINGS.items():
        value = agent.settings.get(setting)
        if isinstance(value, int | float):
            attributes[name] = value
    return attributes


def provider_of(agent: AgentSpec | None) -> str:
    """The provider name. ``vendor/model`` names the vendor; a model object of the user is
    ``custom``; everything else uses OpenAI's protocol.
    """
    vendor, slash, _ = model_of(agent).partition("/")
    if slash and vendor:
        return vendor
    return "custom" if agent is not None and agent.hosted_model else "openai"


def answer_attributes(answered: ModelAnswered) -> Attributes:
    attributes: Attributes = {semconv.RESPONSE_FINISH_REASONS: [finish_reason(answered)]}
    if answered.model:
        attributes[semconv.RESPONSE_MODEL] = answered.model
    if answered.response_id:
        attributes[semconv.RESPONSE_ID] = answered.response_id
    return attributes | usage_attributes(answered.usage)


def usage_attributes(usage: TokenUsage) -> Attributes:
    attributes: Attributes = {
        semconv.INPUT_TOKENS: usage.input_tokens,
        semconv.OUTPUT_TOKENS: usage.output_tokens,
    }
    for name, count in (
        (semconv.CACHE_READ_TOKENS, usage.cached_tokens),
        (semconv.CACHE_WRITE_TOKENS, usage.cache_write_tokens),
        (semconv.REASONING_TOKENS, usage.reasoning_tokens),
    ):
        if count:
            attributes[name] = count
    return attributes


def note_retries(span: Span, answered: ModelAnswered) -> int:
    """Count the requests that were repeated before the answer came. Those that the harness repeated
    become events of the span; those that the model client repeated are counted in its usage.
    """
    for retry in answered.retries:
        at_ns = min(span.start_ns + max(retry.after_ms, 0) * MS, span.end_ns)
        noted: Attributes = {semconv.ERROR_TYPE: retry.code, semconv.RETRY_DELAY: retry.delay_s}
        span.events.append(SpanEvent(name="retry", time_ns=at_ns, attributes=noted))
    return len(answered.retries) + max(answered.usage.requests - 1, 0)


def finish_reason(answered: ModelAnswered) -> str:
    """Why the model stopped, in terms of the conventions."""
    items = [_read(raw) for raw in answered.output]
    if any(item.type.endswith("_call") for item in items):
        return "tool_call"
    if any(item.status == "incomplete" for item in items):
        return "length"
    if any(part.type == "refusal" for item in items for part in item.content):
        return "content_filter"
    return "stop"


def _read(raw: msgspec.Raw) -> _Item:
    try:
        return _item(raw)
    except NOT_JSON:  # an item of another shape
        return _Item()


def failed_in_model(error: ErrorInfo | None) -> bool:
    """Whether the model call itself failed, rather than the handling of its answer."""
    return error is not None and error.code.startswith("model_") and "kind" in error.data


def error_type(error: ErrorInfo) -> str:
    """A short, stable name: the HTTP status if there is one."""
    status = error.data.get("status")
    return str(status) if isinstance(status, int) else error.code
