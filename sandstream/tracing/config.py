"""Settings of one trace, and of the traces of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from sandstream_bus.environment import variable
from sandstream_bus.wire.error_text import error_text
from typing_extensions import TypedDict

from sandstream.exceptions import UserError

if TYPE_CHECKING:
    from sandstream.run_config import RunConfig


class TracingConfig(TypedDict, total=False):
    """How one trace is made and exported."""

    api_key: str
    """The key with which an exporter sends this trace, instead of its own."""
    include_task_and_turn_spans: bool
    """Whether runs have task and turn spans; the default is yes."""


def includes_sensitive_data() -> bool:
    """What counts for a run that does not say: the environment, else yes."""
    value = variable("OPENAI_AGENTS_TRACE_INCLUDE_SENSITIVE_DATA", "true")
    return value.strip().lower() in ("1", "true", "yes", "on")


def includes_task_and_turn_spans(config: TracingConfig | None) -> bool:
    return config is None or config.get("include_task_and_turn_spans", True)


def check_tracing_config(value: Any) -> None:
    """Check that the value is a :class:`TracingConfig`.

    Raises:
        UserError: says what is wrong.
    """
    if value is None:
        return
    if not isinstance(value, dict):
        raise UserError(f"tracing must be a TracingConfig (a dict), not {type(value).__name__}")
    known = {"api_key": str, "include_task_and_turn_spans": bool}
    for name, given in value.items():
        if name not in known:
            raise UserError(f"tracing has no {name!r}; it has {', '.join(known)}")
        if not isinstance(given, known[name]):
            raise UserError(
                f"tracing[{name!r}] must be a {known[name].__name__}, not {type(given).__name__}"
            )


def check_trace_settings(config: RunConfig) -> None:
    """Check the trace settings of a run.

    Raises:
        UserError: says what is wrong.
    """
    check_tracing_config(config.tracing)
    if not isinstance(config.workflow_name, str) or not config.workflow_name:
        raise UserError(f"workflow_name must be a text; it is {config.workflow_name!r}")
    for name, value in (("trace_id", config.trace_id), ("group_id", config.group_id)):
        if value is not None and (not isinstance(value, str) or not value):
            raise UserError(f"{name} must be a text, or left out; it is {value!r}")
    for name in ("tracing_disabled", "trace_include_sensitive_data"):
        if not isinstance(getattr(config, name), bool):
            raise UserError(f"{name} must be True or False; it is {getattr(config, name)!r}")
    metadata = config.trace_metadata
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        raise UserError(f"trace_metadata must be a dict, not {type(metadata).__name__}")
    try:
        msgspec.json.encode(metadata)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"trace_metadata is not JSON: {error_text(error)}") from None
