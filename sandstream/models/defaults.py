"""The process-wide defaults for calling models by name: API key, client, API."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from sandstream_actors.model import ModelAnswer, ModelClient, ModelRequest, routes_from_env
from sandstream_actors.model.client import OnEvent
from sandstream_bus.environment import environment


@dataclass(frozen=True)
class _Defaults:
    key: str | None = None
    client: Any | None = None
    api: Literal["responses", "chat"] | None = None


_defaults = _Defaults()
_FOLLOWED = (
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_ORG_ID",
    "OPENAI_PROJECT_ID",
    "SANDSTREAM_OPENAI_API",
)
"""Variables whose changes take effect while the process runs; other routes are read once."""


def current_defaults() -> _Defaults:
    return _defaults


def set_default_openai_key(key: str, use_for_tracing: bool = True) -> None:
    """Use this API key instead of ``OPENAI_API_KEY``, for models that this process calls.

    Args:
        key: The key.
        use_for_tracing: Has no effect: nothing is sent to OpenAI's trace endpoint by default.
    """
    global _defaults
    _defaults = dataclasses.replace(_defaults, key=key)


def set_default_openai_client(client: Any, use_for_tracing: bool = True) -> None:
    """Use this client for all models without their own route, in this process.

    Args:
        client: An ``AsyncOpenAI``. The caller closes it.
        use_for_tracing: Has no effect: nothing is sent to OpenAI's trace endpoint by default.

    Example:
        set_default_openai_client(AsyncOpenAI(base_url="https://gateway.example.com/v1"))
    """
    global _defaults
    _defaults = dataclasses.replace(_defaults, client=client)


def set_default_openai_api(api: Literal["chat_completions", "responses"]) -> None:
    """Choose the API by which this process calls models.

    Args:
        api: ``responses`` or ``chat_completions``.

    Raises:
        ValueError: The API is unknown.
    """
    if api not in ("chat_completions", "responses"):
        raise ValueError(f"unknown API {api!r}: use 'responses' or 'chat_completions'")
    global _defaults
    _defaults = dataclasses.replace(_defaults, api="responses" if api == "responses" else "chat")


class DefaultModels:
    """The model client of this process; follows changes of the defaults and the environment."""

    def __init__(self) -> None:
        self._made_for: object = None
        self._client: ModelClient | None = None
        self._retired: list[ModelClient] = []

    async def call(self, request: ModelRequest, on_event: OnEvent | None = None) -> ModelAnswer:
        return await self._current().call(request, on_event)

    async def aclose(self) -> None:
        for client in [*self._retired, *([self._client] if self._client else [])]:
            await client.aclose()
        self._client = None
        self._retired.clear()

    def _current(self) -> ModelClient:
        wanted = (_defaults, *map(environment().get, _FOLLOWED))
        if self._client is None or self._made_for != wanted:
            if self._client is not None:
                self._retired.append(self._client)  # calls may still be under way
            self._client = _client_of(_defaults, dict(environment()))
            self._made_for = wanted
        return self._client


def _client_of(defaults: _Defaults, environ: dict[str, str]) -> ModelClient:
    first, *others = routes_from_env(environ)
    if defaults.key is not None:
        first = dataclasses.replace(first, api_key=defaults.key)
    if defaults.api is not None:
        first = dataclasses.replace(first, api=defaults.api)
    return ModelClient([first, *others], environ=environ, default_client=defaults.client)
