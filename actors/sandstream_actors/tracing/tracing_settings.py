"""Settings of the tracing actor from flags and environment; checked before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from sandstream_bus.environment import environment
from sandstream_bus.wire.subjects import check_token

from sandstream_actors.tracing.export.settings import ExportSettings, TelemetryError
from sandstream_actors.tracing.redaction import Redactor, load_redactor

CONTENTS: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
REDACT: Final = "SANDSTREAM_TRACE_REDACT"
_ON: Final = ("true", "span_only", "span_and_event")
_OFF: Final = ("", "false", "no_content", "event_only")


class TracingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one replica."""

    group: str = "main"
    contents: bool = False
    """Whether to export what people, models and tools say."""
    redactor: Redactor
    hook: str = ""
    """The name of the user's redaction hook."""
    export: ExportSettings = ExportSettings()

    @classmethod
    def of(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        group: str | None = None,
        contents: bool | None = None,
        redact: str | None = None,
    ) -> TracingSettings:
        """The settings; explicit values override the environment. Raises for invalid values."""
        env = environment(environ)
        hook = redact or env.get(REDACT, "").strip()
        return cls(
            group=check_token(group or "main", "the group"),
            contents=_contents(env) if contents is None else contents,
            redactor=load_redactor(hook),
            hook=hook,
            export=ExportSettings.from_env(env),
        )


def _contents(env: Mapping[str, str]) -> bool:
    """Some instrumentations distinguish spans and events here; we have only spans."""
    text = env.get(CONTENTS, "").strip().lower()
    if text not in (*_ON, *_OFF):
        raise TelemetryError(f"{CONTENTS}={env[CONTENTS]!r}: allowed is true or false")
    return text in _ON
