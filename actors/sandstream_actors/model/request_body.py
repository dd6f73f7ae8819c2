"""Shared by both APIs: extra arguments, extra body, headers and query of a request."""

from __future__ import annotations

from typing import Any

import msgspec

from sandstream_actors.model.interface import ModelCallError, ModelRequest
from sandstream_actors.model.transport import Call

_OPTION_NAMES = frozenset({"extra_headers", "extra_query", "extra_body"})
_encode = msgspec.json.Encoder().encode


def named(settings: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The settings that are set, under their names in the API."""
    return {wire: settings[ours] for ours, wire in names.items() if settings.get(ours) is not None}


def make_call(path: str, endpoint: str, arguments: dict[str, Any], request: ModelRequest) -> Call:
    """Merge the `extra_*` settings into the arguments and encode.

    As in the reference, a key of `extra_args` must not repeat an argument that is set, while
    `extra_body` replaces the arguments that it names.
    """
    settings = request.settings
    extra = dict(settings.get("extra_args") or {})
    repeated = sorted(key for key in extra if key in arguments or key in _OPTION_NAMES)
    if repeated:
        keys = ", ".join(repr(key) for key in repeated)
        noun = "argument" if len(repeated) == 1 else "arguments"
        raise ModelCallError(
            "misconfigured",
            f"{endpoint} got multiple values for keyword {noun} {keys}: extra_args repeats what "
            "the model settings already set.",
            code="duplicate_argument",
        )
    if request.cache_key is not None and "prompt_cache_key" not in extra:
        arguments = {**arguments, "prompt_cache_key": request.cache_key}
    timeout_s = extra.pop("timeout", None)
    body = {**arguments, **extra, **(settings.get("extra_body") or {})}
    try:
        encoded = _encode(body)
    except (TypeError, msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise ModelCallError(
            "misconfigured", f"The model request is not JSON: {error}", code="not_json"
        ) from error
    return Call(
        path=path,
        body=encoded,
        stream=request.stream,
        headers=settings.get("extra_headers") or {},
        query=settings.get("extra_query"),
        client_timeout_s=timeout_s,
        # The call itself changes a conversation; repeating an unanswered one would double its
        # input.
        repeatable=request.conversation_id is None,
    )
