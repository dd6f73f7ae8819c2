"""Settings of one trace."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from sandstream.exceptions import UserError


class TracingConfig(TypedDict, total=False):
    """How one trace is made and exported."""

    api_key: str
    """The key with which an exporter sends this trace, in place of its own."""
    include_task_and_turn_spans: bool
    """Whether runs have task and turn spans; they do if nothing is said."""


def includes_task_and_turn_spans(config: TracingConfig | None) -> bool:
    return config is None or config.get("include_task_and_turn_spans", True)


def check_tracing_config(value: Any) -> None:
    """Refuse what is no :class:`TracingConfig`.

    Raises:
        UserError: which says what is wrong.
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
