"""Exports traces to OpenAI's trace endpoint or a compatible one. Opt-in: it is not used unless a
program adds it.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
import urllib.error
import urllib.request
from email.message import Message
from typing import Any, Final, NamedTuple

import msgspec
from sandstream_bus.environment import variable
from sandstream_bus.wire.error_text import named_error

from sandstream._surface.json_values import as_plain
from sandstream.exceptions import UserError
from sandstream.tracing.processor_interface import TracingExporter
from sandstream.tracing.spans import Span
from sandstream.tracing.traces import Trace

logger = logging.getLogger(__name__)

INGEST_ENDPOINT: Final = "https://api.openai.com/v1/traces/ingest"
_MAX_FIELD_BYTES: Final = 100_000
"""OpenAI's endpoint refuses a longer input or output."""
_USAGE = ("input_tokens", "output_tokens")
"""The usage fields of a generation that the endpoint accepts; it refuses others."""
_TIMEOUT_S: Final = 60.0
_WORTH_ANOTHER_TRY: Final = frozenset({408, 409, 429})
_REASONING = ("reasoning", "reasoning_content", "thinking", "thinking_blocks")


class BackendSpanExporter(TracingExporter):
    """Posts batches as JSON. Retries temporary failures; drops and logs the rest.

    Args:
        api_key: The key; ``None`` reads ``OPENAI_API_KEY``.
        organization: The organization; ``None`` reads ``OPENAI_ORG_ID``.
        project: The project; ``None`` reads ``OPENAI_PROJECT_ID``.
        endpoint: The URL to post to.
        max_retries: How often a failed request is repeated.
        base_delay: Seconds before the first retry; each next delay is twice as long.
        max_delay: The longest delay in seconds.

    Raises:
        UserError: ``endpoint`` is not a URL.
    """

    def __init__(
        self,
        api_key: str | None = None,
        organization: str | None = None,
        project: str | None = None,
        endpoint: str = INGEST_ENDPOINT,
        max_retries: int = 3,
        base_delay: float = 1.0,
        max_delay: float = 30.0,
    ) -> None:
        if not endpoint.startswith(("https://", "http://")):
            raise UserError(f"the endpoint of a trace exporter must be a URL; it is {endpoint!r}")
        self._api_key = api_key
        self._organization = organization
        self._project = project
        self.endpoint = endpoint
        self.max_retries = max_retries
        self.base_delay = base_delay
        self.max_delay = max_delay
        self._deadline = math.inf
        self._stopping = threading.Event()

    def set_api_key(self, api_key: str) -> None:
        """Set the key to use instead of ``OPENAI_API_KEY``.

        Args:
            api_key: The key. A trace with a key of its own still uses that one.
        """
        self._api_key = api_key

    @property
    def api_key(self) -> str | None:
        return self._api_key or variable("OPENAI_API_KEY") or None

    @property
    def organization(self) -> str | None:
        return self._organization or variable("OPENAI_ORG_ID") or None

    @property
    def project(self) -> str | None:
        return self._project or variable("OPENAI_PROJECT_ID") or None

    def stop_within(self, seconds: float) -> None:
        """The program is ending: do not retry for longer than this.

        Args:
            seconds: The time that is left from now on.
        """
        self._deadline = time.monotonic() + seconds
        self._stopping.set()

    def close(self) -> None:
        """Nothing to do: no connection is kept open."""

    def export(self, items: list[Trace | Span[Any]]) -> None:
        of_key: dict[str | None, list[dict[str, Any]]] = {}
        for item in items:
            exported = item.export()
            if exported:
                of_key.setdefault(item.tracing_api_key, []).append(self._sendable(exported))
        for key, data in of_key.items():
            api_key = key or self.api_key
            if api_key:
                self._post(api_key, data)
            else:
                logger.warning("traces are not exported: OPENAI_API_KEY is not set")

    # --- sending -------------------------------------------------------------------------------

    def _post(self, api_key: str, data: list[dict[str, Any]]) -> None:
        request = urllib.request.Request(
            self.endpoint,
            data=msgspec.json.encode({"data": data}),
            headers=self._headers(api_key),
            method="POST",
        )
        delay_s = self.base_delay
        for attempt in range(1, self.max_retries + 1):
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                break
            answer = _sent(request, min(_TIMEOUT_S, left_s))
            if answer.is_fine:
                return
            if not answer.is_worth_another_try:
                logger.error("the backend refuses traces", extra={"why": answer.problem})
                return
            if attempt < self.max_retries:
                logger.warning("traces could not be exported yet", extra={"why": answer.problem})
                pause_s = max(delay_s * random.uniform(1.0, 1.1), answer.retry_after_s)
                self._pause(min(pause_s, self.max_delay))
                delay_s = min(delay_s * 2, self.max_delay)
        logger.error("traces are lost: the backend cannot be reached")

    def _pause(self, seconds: float) -> None:
        """Wait. At the program's end, wait at most until the deadline."""
        left_s = self._deadline - time.monotonic()
        if self._stopping.is_set():
            time.sleep(max(0.0, min(seconds, left_s)))
        else:
            self._stopping.wait(seconds)

    def _headers(self, api_key: str) -> dict[str, str]:
        headers = {
            "Authorization": f"Bearer {api_key}",
            "Content-Type": "application/json",
            "OpenAI-Beta": "traces=v1",
        }
        if self.organization:
            headers["OpenAI-Organization"] = self.organization
        if self.project:
            headers["OpenAI-Project"] = self.project
        return headers

    # --- what is sent --------------------------------------------------------------------------

    def _sendable(self, exported: dict[str, Any]) -> dict[str, Any]:
        plain: dict[str, Any] = as_plain(exported)
        data = plain.get("span_data")
        if self.endpoint.rstrip("/") == INGEST_ENDPOINT and isinstance(data, dict):
            plain["span_data"] = _for_openai(data)
        return plain


def _for_openai(data: dict[str, Any]) -> dict[str, Any]:
    """Span data as OpenAI's endpoint accepts it: no reasoning, no long fields, only token
    counts.
    """
    fitting = {name: value for name, value in data.items() if name != "usage"}
    is_generation = data.get("type") == "generation"
    for name in ("input", "output"):
        if name in data:
            value = _without_reasoning(data[name]) if is_generation else data[name]
            fitting[name] = _cut(value)
    usage = data.get("usage")
    if is_generation and isinstance(usage, dict):
        counts = {name: usage[name] for name in _USAGE if isinstance(usage.get(name), int)}
        rest = {name: it for name, it in usage.items() if name not in _USAGE and it is not None}
        if len(counts) == len(_USAGE):
            fitting["usage"] = {**counts, **({"details": rest} if rest else {})}
    return fitting


def _without_reasoning(messages: Any) -> Any:
    if not isinstance(messages, list):
        return messages
    return [
        {name: value for name, value in it.items() if name not in _REASONING}
        if isinstance(it, dict) and it.get("role") == "assistant"
        else it
        for it in messages
    ]


def _cut(value: Any) -> Any:
    if len(msgspec.json.encode(value)) <= _MAX_FIELD_BYTES:
        return value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    cut = text.encode()[: _MAX_FIELD_BYTES // 2].decode(errors="ignore") + "… (cut)"
    # a field that is not text must stay a list or an object
    return cut if isinstance(value, str) else [{"role": "user", "content": cut}]


class _Answer(NamedTuple):
    """The result of a request."""

    status: int
    """0 if there was no response."""
    problem: str = ""
    headers: Message | None = None

    @property
    def is_fine(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_worth_another_try(self) -> bool:
        if self._header("x-should-retry").strip().lower() == "false":
            return False
        return self.status == 0 or self.status >= 500 or self.status in _WORTH_ANOTHER_TRY

    @property
    def retry_after_s(self) -> float:
        try:
            seconds = float(self._header("retry-after"))
        except ValueError:
            return 0.0
        return seconds if math.isfinite(seconds) else 0.0

    def _header(self, name: str) -> str:
        return str(self.headers.get(name, "")) if self.headers is not None else ""


def _sent(request: urllib.request.Request, timeout_s: float) -> _Answer:
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            return _Answer(response.status)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(200).decode(errors="replace")
            return _Answer(error.code, f"HTTP {error.code}: {text}", error.headers)
    except OSError as error:
        return _Answer(0, named_error(error))
