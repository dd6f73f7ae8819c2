"""The interface of the model client: the request, the answer, the failure.

Everything can be encoded as JSON, because a request may travel over the bus. Items, tools and
schemas are raw JSON: the client passes them on and decodes them only if an API requires it. This
module knows no vendor and does no I/O.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from sandstream_bus.wire.messages import TokenUsage as Usage
from sandstream_bus.wire.specs import NO_JSON

ModelErrorKind = Literal[
    "rate_limited",
    "unavailable",
    "rejected",
    "behavior",
    "timeout",
    "refused_auth",
    "misconfigured",
]


def given(raw: msgspec.Raw | None) -> bool:
    """Whether there is JSON other than null."""
    return raw is not None and bytes(raw) not in (b"", b"null")


class OutputSchema(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The JSON schema that the final answer must follow."""

    schema: msgspec.Raw
    name: str = "final_output"
    strict: bool = True


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model call, in terms of the Responses API.

    ``model`` may carry a route prefix (``ollama/llama3``); it is empty when a stored prompt names
    the model. ``settings`` holds the ModelSettings that are set, under their own names.
    """

    model: str
    input: list[msgspec.Raw]
    instructions: str | None = None
    tools: list[msgspec.Raw] = []
    settings: dict[str, Any] = {}
    output_schema: OutputSchema | None = None
    previous_response_id: str | None = None
    conversation_id: str | None = None
    prompt: msgspec.Raw = NO_JSON
    stream: bool = False
    cache_key: str | None = None
    """Shared by requests with a common beginning; only sent to OpenAI's own endpoint."""


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A completed answer: output items in Responses format, as raw JSON."""

    output: list[msgspec.Raw]
    usage: Usage
    response_id: str | None = None
    request_id: str | None = None
    model: str | None = None
    raw_usage: msgspec.Raw = NO_JSON


class ModelCallError(Exception):
    """A model call that gave no answer.

    Callers branch on ``kind``. ``retryable`` says whether the same call may succeed later and is
    safe to repeat. ``events_seen`` counts the stream events passed on before the failure,
    ``requests`` the HTTP attempts made. ``body`` is the endpoint's error object, if it sent one.
    """

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        request_id: str | None = None,
        body: Any = None,
        retry_after_s: float | None = None,
        retryable: bool = False,
        events_seen: int = 0,
        requests: int = 0,
    ) -> None:
        super().__init__(message)
        self.kind: ModelErrorKind = kind
        self.message = message
        self.status = status
        self.code = code
        self.request_id = request_id
        self.body = body
        self.retry_after_s = retry_after_s
        self.retryable = retryable
        self.events_seen = events_seen
        self.requests = requests


__all__ = [
    "NO_JSON",
    "ModelAnswer",
    "ModelCallError",
    "ModelErrorKind",
    "ModelRequest",
    "OutputSchema",
    "Usage",
    "given",
]
