"""Convert between plain JSON and the `openai` package's types, only on access.

Internally, items and stream events are plain dicts: cheap, and what the wire carries. User code
expects the vendor's classes (``isinstance(event.data, ResponseTextDeltaEvent)``). They are built on
first access, without validating again what the endpoint already guarantees.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, get_args

_OUTPUT_ITEMS = {
    "message": "ResponseOutputMessage",
    "function_call": "ResponseFunctionToolCall",
    "custom_tool_call": "ResponseCustomToolCall",
    "reasoning": "ResponseReasoningItem",
    "file_search_call": "ResponseFileSearchToolCall",
    "web_search_call": "ResponseFunctionWebSearch",
    "code_interpreter_call": "ResponseCodeInterpreterToolCall",
}


@cache
def _item_class(kind: str) -> Any:
    from openai.types import responses

    name = _OUTPUT_ITEMS.get(kind)
    return getattr(responses, name, None) if name else None


@cache
def _event_classes() -> dict[str, Any]:
    """Stream event types and their classes, from the vendor's own union."""
    from openai.types.responses import ResponseStreamEvent

    union = get_args(ResponseStreamEvent)[0]
    classes: dict[str, Any] = {}
    for event_class in get_args(union):
        (kind,) = get_args(event_class.model_fields["type"].annotation)
        classes[kind] = event_class
    return classes


def typed_item(raw: Any) -> Any:
    """An output item as the vendor's class; a dict if there is none."""
    if not isinstance(raw, dict):
        return raw
    item_class = _item_class(str(raw.get("type", "message")))
    return raw if item_class is None else item_class.construct(**raw)


def typed_response(raw: dict[str, Any]) -> Any:
    """A whole answer of the Responses API as the vendor's class."""
    from openai.types.responses import Response

    output = [typed_item(item) for item in raw.get("output", [])]
    return Response.construct(**{**raw, "output": output})


def typed_event(raw: dict[str, Any]) -> Any:
    """A stream event as the vendor's class; a dict for an unknown type."""
    event_class = _event_classes().get(str(raw.get("type")))
    if event_class is None:
        return raw
    if isinstance(raw.get("response"), dict):
        return _lazy_class(event_class)._of(raw)
    return event_class.construct(**raw)


@cache
def _lazy_class(event_class: Any) -> Any:
    """A subclass whose ``response`` is built on first access.

    Such events carry the whole response, including tools, and come before the first token; most
    programs only look at their type.
    """

    class LazyEvent(event_class):  # type: ignore[misc]
        @classmethod
        def _of(cls, raw: dict[str, Any]) -> Any:
            event = cls.model_construct(**{k: v for k, v in raw.items() if k != "response"})
            event.__dict__.pop("response", None)  # construct() fills missing fields with None
            object.__setattr__(event, "__pydantic_private__", {"_raw": raw["response"]})
            return event

        def __getattr__(self, name: str) -> Any:
            if name != "response":
                return super().__getattr__(name)
            response_class = event_class.model_fields["response"].annotation
            self.response = response_class.construct(**self.__pydantic_private__["_raw"])
            return self.response

        def model_dump(self, **options: Any) -> Any:
            _ = self.response
            return super().model_dump(**options)

        def model_dump_json(self, **options: Any) -> str:
            _ = self.response
            return str(super().model_dump_json(**options))

    LazyEvent.__name__ = LazyEvent.__qualname__ = event_class.__name__
    return LazyEvent


def plain(value: Any) -> Any:
    """Convert an item back to JSON values; vendor objects are dumped without their unset fields."""
    dump = getattr(value, "model_dump", None)
    return dump(exclude_unset=True) if callable(dump) else value


def vendor_error(message: str, status: int | None, body: Any) -> Exception:
    """The `openai` exception for an endpoint's answer; without a status: a connection error."""
    import openai

    # the package moved from httpx to httpx2: ask its client which one it is built on
    http: Any = import_module(
        openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0]
    )
    request = http.Request("POST", "http://model.invalid/")
    if status is None:
        return openai.APIConnectionError(message=message, request=request)
    classes: dict[int, type[openai.APIStatusError]] = {
        400: openai.BadRequestError,
        401: openai.AuthenticationError,
        403: openai.PermissionDeniedError,
        404: openai.NotFoundError,
        409: openai.ConflictError,
        422: openai.UnprocessableEntityError,
        429: openai.RateLimitError,
    }
    fallback = openai.InternalServerError if status >= 500 else openai.APIStatusError
    kind = classes.get(status, fallback)
    return kind(message, response=http.Response(status, request=request), body=body)
