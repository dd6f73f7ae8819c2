"""Which endpoint serves which model name. Pure: the environment is passed in.

A model name may begin with the prefix of a route: ``ollama/llama3`` goes to the route ``ollama``
as model ``llama3``. ``openai/`` always means the default route, as does a name without a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from sandstream_actors.model.interface import ModelCallError

Api = Literal["responses", "chat"]
UnknownPrefix = Literal["error", "passthrough"]

OPENAI_BASE_URL = "https://api.openai.com/v1"
DEFAULT_PREFIX = "openai"
_ROUTE_VARIABLE = re.compile(r"SANDSTREAM_ROUTE_([A-Z0-9_]+?)_(BASE_URL|API_KEY|API)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One endpoint. Its key is ``api_key``, or read from ``api_key_env`` at the first call."""

    prefix: str
    base_url: str = OPENAI_BASE_URL
    api_key: str | None = field(default=None, repr=False)
    api_key_env: str | None = None
    api: Api = "responses"
    organization: str | None = None
    project: str | None = None

    @property
    def is_official(self) -> bool:
        return is_official(self.base_url)

    def key(self, environ: Mapping[str, str]) -> str:
        """The API key; endpoints other than OpenAI's may not need one."""
        named = environ.get(self.api_key_env) if self.api_key_env else None
        key = (self.api_key or named or "").strip()
        wanted = self.api_key_env or "OPENAI_API_KEY"
        if key and not (key.isascii() and key.isprintable()):
            raise _misconfigured(f"The API key for {self.base_url} ({wanted}) is not plain text.")
        if key:
            return key
        if not self.is_official:
            return "not-needed"
        raise ModelCallError(
            "misconfigured",
            f"No API key for {self.base_url}. Set {wanted}, or point OPENAI_BASE_URL at an "
            "endpoint that needs none.",
            code="missing_api_key",
        )


def is_official(base_url: str) -> bool:
    """Whether a URL is OpenAI's own API, where some request defaults differ."""
    host = endpoint_of(base_url).partition(":")[0]
    return host == "api.openai.com" or host.endswith(".api.openai.com")


def endpoint_of(base_url: str) -> str:
    """Host and port for display; never the user or password of a URL."""
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return base_url
    return parts.netloc.rpartition("@")[2] or base_url


def routes_from_env(environ: Mapping[str, str]) -> list[Route]:
    """The default route first, then one for every ``SANDSTREAM_ROUTE_<PREFIX>_BASE_URL``."""
    routes = [
        Route(
            prefix=DEFAULT_PREFIX,
            base_url=environ.get("OPENAI_BASE_URL") or OPENAI_BASE_URL,
            api_key_env="OPENAI_API_KEY",
            api=_api(environ, "SANDSTREAM_OPENAI_API", "responses"),
            organization=environ.get("OPENAI_ORG_ID") or None,
            project=environ.get("OPENAI_PROJECT_ID") or None,
        )
    ]
    found = (_ROUTE_VARIABLE.fullmatch(name) for name in environ)
    for name in sorted({match[1] for match in found if match}):
        stem = f"SANDSTREAM_ROUTE_{name}"
        base_url = environ.get(f"{stem}_BASE_URL")
        if not base_url:
            raise _misconfigured(f"The route {name.lower()} has no address. Set {stem}_BASE_URL.")
        routes.append(
            Route(
                prefix=name.lower(),
                base_url=base_url,
                api_key_env=f"{stem}_API_KEY",
                api=_api(environ, f"{stem}_API", "chat"),
            )
        )
    return routes


def resolve(
    model: str, routes: Sequence[Route], unknown_prefix: UnknownPrefix = "error"
) -> tuple[Route, str]:
    """The route for a model name, and the name that its endpoint expects."""
    default = routes[0]
    prefix, slash, rest = model.partition("/")
    if not slash:
        return default, model
    for route in routes:
        if route.prefix == prefix.lower():
            return route, rest
    if prefix.lower() == DEFAULT_PREFIX:
        return default, rest
    if unknown_prefix == "passthrough":
        return default, model
    known = ", ".join(sorted(f"{route.prefix}/" for route in routes))
    name = re.sub(r"[^A-Z0-9]", "_", prefix.upper())
    raise ModelCallError(
        "misconfigured",
        f"No route for the model {model!r}: the prefix {prefix + '/'!r} is not known (known: "
        f"{known}). Set SANDSTREAM_ROUTE_{name}_BASE_URL, write 'openai/{model}' to send that id "
        "to the default endpoint, or build the client with unknown_prefix='passthrough'.",
        code="unknown_route",
    )


def _api(environ: Mapping[str, str], name: str, default: Api) -> Api:
    value = environ.get(name) or default
    if value == "chat" or value == "chat_completions":
        return "chat"
    if value == "responses":
        return "responses"
    raise _misconfigured(f"{name} is {value!r}; it must be 'responses' or 'chat'.")


def _misconfigured(message: str) -> ModelCallError:
    return ModelCallError("misconfigured", message, code="bad_route")
