"""Check how an endpoint really answers to spans by HTTP.

OpenTelemetry's exporter treats every status below 400 as success: behind a redirect or a login page
spans would be lost silently. It also ignores which spans were rejected.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from sandstream_bus.environment import variable

from sandstream_actors.secrets.patterns import scrub

_CREDENTIALS: Final = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
)
_LONGEST: Final = 500


class NotTaken(Exception):
    """The endpoint does not accept spans. The message says what answered, and what to do."""


class Answers:
    """Checks the responses to one exporter's requests."""

    def __init__(self) -> None:
        self._rejected = 0
        self._why = ""
        self._session: Any = None

    def session(self) -> Any:
        """For the exporter to send with; None if the user's own credential provider makes it."""
        if any(map(variable, _CREDENTIALS)):
            return None
        self._session = importlib.import_module("requests").Session()
        self._session.hooks["response"].append(self._check)
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()

    def take_rejected(self) -> tuple[int, str]:
        """How many spans were rejected since the last call, and why."""
        found = self._rejected, self._why
        self._rejected, self._why = 0, ""
        return found

    def _check(self, response: Any, *_: Any, **__: Any) -> None:
        status: int = response.status_code
        kind: str = response.headers.get("content-type", "")
        if 300 <= status < 400:
            response.close()
            where = short(response.headers.get("location", "nowhere"))
            raise NotTaken(
                f"the endpoint answers with a redirect ({status}) to {where}: let "
                "OTEL_EXPORTER_OTLP_ENDPOINT be the place that takes spans"
            )
        if status < 300 and kind.startswith("text/html"):
            response.close()
            raise NotTaken(
                "the endpoint answers with a web page: is OTEL_EXPORTER_OTLP_ENDPOINT one of OTLP?"
            )
        if status < 300 and kind.startswith("application/x-protobuf"):
            self._read(response.content)

    def _read(self, body: bytes) -> None:
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceResponse,
        )

        try:
            partly = ExportTraceServiceResponse.FromString(body).partial_success
        except DecodeError:
            return  # accepted, according to the status
        self._rejected += max(partly.rejected_spans, 0)
        self._why = short(partly.error_message)


def short(text: str) -> str:
    """Shorten and scrub foreign text for the log."""
    return scrub(text[:_LONGEST])
