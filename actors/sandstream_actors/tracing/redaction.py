"""Redact spans before they are stored and exported: mask secrets, then apply the user's hook.

Anything that looks like a secret is always masked, in every text of a span and of a run. Then the
user's hook sees each text and attribute and may change or drop it. If the hook fails, the value is
dropped: a broken hook loses telemetry, but neither leaks anything nor stops the actor.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
from sandstream_bus.errors import SandstreamError
from sandstream_bus.wire.error_text import error_text, named_error
from sandstream_bus.wire.trace_context import run_span_id

from sandstream_actors.secrets.patterns import (
    MASK,
    hides_the_next,
    is_surely_clean,
    names_a_secret,
    shortest_secret,
)
from sandstream_actors.secrets.patterns import scrub as scrub
from sandstream_actors.tracing import semconv
from sandstream_actors.tracing.facts import RunFacts
from sandstream_actors.tracing.span import Attributes, Span, SpanEvent, SpanLink, Value

logger = logging.getLogger(__name__)

Hook = Callable[[str, Value, Span], "Value | None"]
"""Called with an attribute's name and value and the span; ``None`` drops the attribute."""

ERROR_MESSAGE = "error.message"
"""The name under which the hook sees ``Span.error_message``."""
SPAN_NAME = "span.name"
RUN_KEY = "sandstream.run.key"
_OF_RUN = {
    "agent": semconv.AGENT_NAME,
    "first_agent": semconv.AGENT_NAME,
    "workflow": semconv.WORKFLOW_NAME,
    "group_id": semconv.GROUP_ID,
    "session": semconv.SESSION_ID,
    "model": semconv.RESPONSE_MODEL,
    "key": RUN_KEY,
}
"""The texts of a run that its caller chose, and the names under which the hook sees them."""
_OTHER = "_OTHER"
"""OpenTelemetry's name for an unspecified kind of failure."""
_MAX_DEPTH = 32
_SCHEMA_KEYS = frozenset(("type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"))


class InvalidRedactor(SandstreamError):
    """The configured redaction hook cannot be used."""

    code = "tracing.redactor"


class Redactor:
    """Redacts spans and facts. ``dropped`` counts the attributes that were lost because the hook
    failed.
    """

    def __init__(self, hook: Hook | None = None) -> None:
        self.hook = hook
        self.dropped = 0

    def redact_spans(self, spans: Sequence[Span]) -> list[Span]:
        """Redact all spans. Nearly always one quick check shows that there is nothing to mask."""
        if self.hook is None and is_surely_clean("\n".join(_texts(spans))):
            return list(spans)
        return [self.redact_span(span) for span in spans]

    def redact_span(self, span: Span) -> Span:
        """A copy that may be stored and exported. Ids, times and structure stay."""
        return msgspec.structs.replace(
            span,
            name=self._text(SPAN_NAME, span.name, span) or span.operation,
            agent=self._text(semconv.AGENT_NAME, span.agent, span),
            error=span.error and (self._text(semconv.ERROR_TYPE, span.error, span) or _OTHER),
            error_message=self._text(ERROR_MESSAGE, span.error_message, span),
            attributes=self._redacted(span.attributes, span),
            contents=self._redacted(span.contents, span),
            events=[self._event(event, span) for event in span.events],
            links=[self._link(link, span) for link in span.links],
        )

    def redact_facts(self, facts: RunFacts) -> RunFacts:
        """The same for the facts of a run. The hook gets a span that represents the run."""
        span = Span(
            trace_id=facts.trace_id,
            span_id=run_span_id(facts.run),
            name=semconv.INVOKE_AGENT,
            operation="agent",
            run=facts.run,
            agent=facts.agent,
            start_ns=facts.started_ns,
            end_ns=facts.ended_ns,
        )
        kept = {it: self._text(name, getattr(facts, it), span) for it, name in _OF_RUN.items()}
        error = facts.error
        if error is not None:
            message = self._text(ERROR_MESSAGE, error.message, span)
            error = msgspec.structs.replace(error, message=message)
        return msgspec.structs.replace(facts, error=error, **kept)

    def _text(self, name: str, text: str, span: Span) -> str:
        """Redact a text that is not an attribute; empty if the hook drops it."""
        if not text:
            return ""
        kept = self._asked(name, scrub(text), span)
        return kept if isinstance(kept, str) else ""

    def _event(self, event: SpanEvent, span: Span) -> SpanEvent:
        return msgspec.structs.replace(
            event, name=scrub(event.name), attributes=self._redacted(event.attributes, span)
        )

    def _link(self, link: SpanLink, span: Span) -> SpanLink:
        return msgspec.structs.replace(link, attributes=self._redacted(link.attributes, span))

    def _redacted(self, attributes: Attributes, span: Span) -> Attributes:
        found: Attributes = {}
        for name, value in attributes.items():
            kept = self._asked(name, scrub_value(name, value), span)
            if kept is not None:
                found[scrub(name)] = kept
        return found

    def _asked(self, name: str, value: Value, span: Span) -> Value | None:
        if self.hook is None:
            return value
        try:
            answer = self.hook(name, value, span)
            if answer is None or _is_value(answer):
                return answer
            problem = f"it returned a {type(answer).__name__}"
        except Exception as error:  # noqa: BLE001  of the user's code
            # the message may contain the value that was to be redacted
            problem = f"it raised {type(error).__name__}"
        if self.dropped == 0:
            logger.warning(
                "The redaction hook failed on attribute %s of a span of kind %s: %s. The attribute "
                "is dropped, and so are others it fails on, without another word; a hook returns a "
                "text, a number, a truth value, a list of texts, or None.",
                scrub(name),
                span.operation,
                problem,
            )
        self.dropped += 1
        return None


def _texts(spans: Sequence[Span]) -> list[str]:
    """All texts that could contain a secret. Our own attribute names cannot."""
    found: list[str] = []
    for span in spans:
        found += (span.name, span.agent, span.error, span.error_message)
        _add_texts(found, span.attributes)
        if span.contents:
            _add_texts(found, span.contents)
        for event in span.events:
            found.append(event.name)
            _add_texts(found, event.attributes)
        for link in span.links:
            _add_texts(found, link.attributes)
    return found


def _add_texts(found: list[str], attributes: Attributes) -> None:
    for name, value in attributes.items():
        if name not in semconv.NAMES:
            found.append(name)
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list):
            found += value


def scrub_value(name: str, value: Value) -> Value:
    """An attribute's value without secrets. In JSON, each text is checked by itself and under its
    own name, so that the result is still JSON.
    """
    found = _scrubbed(name.rpartition(".")[2], value, 0)
    return found if _is_value(found) else MASK


def load_redactor(spec: str | None) -> Redactor:
    """A redactor with the hook ``module:function`` named by ``spec``; no hook if empty."""
    if not spec:
        return Redactor()
    module_name, _, path = spec.partition(":")
    if not module_name or not path:
        raise InvalidRedactor(
            f"the redaction hook {spec!r} is not of the form module:function, "
            "as in my_company.privacy:redact"
        )
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise InvalidRedactor(
            f"the module {module_name!r} of the redaction hook cannot be imported "
            f"({named_error(error)}); is it on the Python path of this process?"
        ) from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise InvalidRedactor(
                f"the redaction hook {spec!r} was not found: {found!r} has no {name!r}"
            ) from None
    return Redactor(_checked(spec, found))


def _checked(spec: str, hook: Any) -> Hook:
    if not callable(hook):
        raise InvalidRedactor(
            f"the redaction hook {spec!r} is a {type(hook).__name__}, no function"
        )
    if inspect.iscoroutinefunction(hook):
        raise InvalidRedactor(
            f"the redaction hook {spec!r} is async; it is called for each attribute and must be a "
            "plain function"
        )
    try:
        inspect.signature(hook).bind("name", "value", None)
    except TypeError as error:
        raise InvalidRedactor(
            f"the redaction hook {spec!r} must take (name, value, span): {error_text(error)}"
        ) from error
    except ValueError:
        pass  # a builtin without a signature: the first call will tell
    return cast(Hook, hook)


def _is_value(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(it, str) for it in value)
    return isinstance(value, str | bool | int | float)


def _scrubbed(name: str, value: Any, depth: int) -> Any:
    """A JSON value without secrets; the same object if it contains none."""
    match value:
        case str() if names_a_secret(name, value):
            return MASK
        case str():
            text = _scrubbed_text(value, depth)
            return value if text == value else text
        case bool() | None:
            return value
        case int() | float():
            return MASK if names_a_secret(name, str(value)) else value
        case list() | dict() if depth >= _MAX_DEPTH:
            return MASK  # too deep to check
        case list() | dict() if shortest_secret(name) == 1 and _is_held(value):
            return MASK
        case list():
            items = [_scrubbed(name, it, depth + 1) for it in value]
            for place in _hidden(value):
                items[place] = MASK
            changed = any(new is not old for new, old in zip(items, value, strict=True))
            return items if changed else value
        case dict():
            members = _members(name, value, depth)
            changed = members.keys() != value.keys() or any(
                members[key] is not it for key, it in value.items()
            )
            return members if changed else value
        case _:
            return value


def _is_held(value: list[Any] | dict[str, Any]) -> bool:
    """Whether it contains a value; a schema only describes one."""
    if isinstance(value, dict):
        return bool(value) and _SCHEMA_KEYS.isdisjoint(value)
    return any(it is not None and not isinstance(it, bool) and it not in ("", MASK) for it in value)


def _members(name: str, value: dict[str, Any], depth: int) -> dict[str, Any]:
    """Check each member under its own name, otherwise under the name of the object. In ``{"name":
    …, "value": …}``, the name applies to the value.
    """
    is_schema = not _SCHEMA_KEYS.isdisjoint(value)
    above = name if shortest_secret(name) and not is_schema else ""
    label = next((it for key, it in value.items() if key.lower() in ("name", "key")), "")
    told = label if isinstance(label, str) and shortest_secret(label) else above
    found: dict[str, Any] = {}
    for key, it in value.items():
        under = told if key.lower() == "value" else above
        found[scrub(key)] = _scrubbed(
            key if shortest_secret(key) or not under else under, it, depth + 1
        )
    return found


def _hidden(items: list[Any]) -> list[int]:
    """The positions of values after secret options, as in ``["--password", …]``."""
    return [
        place
        for place, (option, value) in enumerate(itertools.pairwise(items), start=1)
        if isinstance(option, str) and isinstance(value, str) and hides_the_next(option, value)
    ]


def _scrubbed_text(text: str, depth: int) -> str:
    if text[:1] not in ("{", "["):
        return scrub(text)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return scrub(text)
    found = _scrubbed("", value, depth + 1)
    return text if found is value else msgspec.json.encode(found).decode()
