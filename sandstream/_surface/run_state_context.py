"""The user's context in a saved state: stored if it is data, else supplied by the loader."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from sandstream_bus.wire.error_text import error_text

from sandstream.exceptions import UserError
from sandstream.run_context import RunContextWrapper

logger = logging.getLogger(__name__)

ContextSerializer = Callable[[Any], Mapping[str, Any]]
ContextDeserializer = Callable[[Mapping[str, Any]], Any]
ContextOverride = Mapping[str, Any] | RunContextWrapper[Any]


def dump_context(
    context: Any, serializer: ContextSerializer | None, strict: bool
) -> tuple[Any, dict[str, Any]]:
    """The context as data, and metadata about how it was serialized."""
    if context is None:
        return None, _meta(context, "none")
    if isinstance(context, Mapping):
        return _as_json(context, "a mapping"), _meta(context, "mapping")
    if serializer is not None:
        try:
            made = serializer(context)
        except Exception as error:
            raise UserError(f"context_serializer failed: {error_text(error)}") from error
        if not isinstance(made, Mapping):
            raise UserError("context_serializer must return a mapping")
        return _as_json(made, "what context_serializer returned"), _meta(
            context, "context_serializer"
        )
    if strict:
        raise UserError(
            "strict_context: only a mapping can be stored as it is; give a context_serializer that "
            f"makes one of {type(context).__name__}"
        )
    if hasattr(context, "model_dump"):
        made = context.model_dump(exclude_unset=True)
        _warn("is a model and was stored as a mapping", context)
        return _as_json(made, "what model_dump returned"), _meta(context, "model_dump")
    if dataclasses.is_dataclass(context) and not isinstance(context, type):
        try:
            made = _as_json(dataclasses.asdict(context), "the dataclass")
        except (UserError, TypeError):
            pass  # its fields are not JSON: leave it out, like any other object
        else:
            _warn("is a dataclass and was stored as a mapping", context)
            return made, _meta(context, "asdict")
    _warn("is not plain data and was left out of the state", context)
    return {}, _meta(context, "omitted")


def load_context(
    data: Any,
    meta: Mapping[str, Any],
    *,
    override: Any,
    deserializer: ContextDeserializer | None,
    strict: bool,
) -> RunContextWrapper[Any]:
    """The context of a loaded state: the caller's override, or rebuilt from the stored data."""
    if override is None and deserializer is None and meta.get("requires_deserializer"):
        was = meta.get("class_path", "an object")
        text = (
            f"the context was {was}; the state has "
            f"{'nothing of it' if meta.get('omitted') else 'it as a mapping only'}: give "
            "context_override, or a context_deserializer that makes it again"
        )
        if strict:
            raise UserError(f"strict_context: {text}")
        logger.warning(text)
    if override is not None:
        return _wrapped(override)
    if data is None:
        return RunContextWrapper(context=None)
    if deserializer is None:
        return RunContextWrapper(context=data)
    try:
        return _wrapped(deserializer(dict(data)))
    except Exception as error:
        raise UserError(f"context_deserializer failed: {error_text(error)}") from error


def _wrapped(value: Any) -> RunContextWrapper[Any]:
    given = value.context if isinstance(value, RunContextWrapper) else value
    return RunContextWrapper(context=given)


def _as_json(value: Mapping[str, Any], what: str) -> Any:
    try:
        return msgspec.json.decode(msgspec.json.encode(dict(value)))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"the context cannot be stored: {what} is not JSON: {error_text(error)}. "
            "Give a context_serializer that leaves such values out"
        ) from None


def _meta(context: Any, how: str) -> dict[str, Any]:
    meta = {
        "original_type": _kind(context),
        "serialized_via": how,
        "requires_deserializer": how not in ("none", "mapping"),
        "omitted": how == "omitted",
    }
    if meta["original_type"] not in ("none", "mapping"):
        cls = type(context)
        meta["class_path"] = f"{cls.__module__}:{cls.__qualname__}"
    return meta


def _kind(context: Any) -> str:
    if context is None:
        return "none"
    if isinstance(context, Mapping):
        return "mapping"
    if hasattr(context, "model_dump"):
        return "pydantic"
    return "dataclass" if dataclasses.is_dataclass(context) else "custom"


def _warn(what: str, context: Any) -> None:
    logger.warning(
        "the context (%s) %s; load the state with context_override or context_deserializer",
        type(context).__name__,
        what,
    )
