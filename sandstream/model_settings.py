"""Settings of model calls: sampling, tool choice, reasoning, limits.

``None`` always means "do not send it". The settings cross the bus as plain JSON (``to_wire``).
This module does not import ``openai``; its ``Reasoning`` objects are recognized by their shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, TypeAlias

from sandstream.retry import ModelRetrySettings

__all__ = ["MCPToolChoice", "ModelSettings", "Reasoning", "ToolChoice"]


@dataclass
class MCPToolChoice:
    """Force one tool of one hosted MCP server."""

    server_label: str
    """The label of the server in the request."""
    name: str
    """The tool's name on that server."""


ToolChoice: TypeAlias = Literal["auto", "required", "none"] | str | MCPToolChoice | None


class Reasoning(dict[str, Any]):
    """Reasoning settings as JSON, with the attributes of ``openai``'s class of that name.

    ``settings.reasoning.effort`` works for settings from a dict or from the bus.

    Example:
        settings = ModelSettings(reasoning=Reasoning(effort="low"))
    """

    _KNOWN = frozenset({"effort", "summary", "generate_summary", "context", "mode"})

    def __getattr__(self, name: str) -> Any:
        if name in self or name in self._KNOWN:
            return self.get(name)
        raise AttributeError(f"Reasoning has no setting {name!r}")


_CHOICES: dict[str, tuple[str, ...]] = {
    "truncation": ("auto", "disabled"),
    "verbosity": ("low", "medium", "high"),
    "prompt_cache_retention": ("in_memory", "24h"),
}
_NUMBERS = ("temperature", "top_p", "frequency_penalty", "presence_penalty", "max_tokens")


@dataclass
class ModelSettings:
    """Settings of an agent's model calls. Not every model or provider supports all of them.

    Raises:
        ValueError: A value is not among those that a setting allows.

    Example:
        careful = ModelSettings(temperature=0.1, max_tokens=2000, tool_choice="required")
        agent = Agent(name="Assistant", model_settings=careful)
    """

    temperature: float | None = None
    """The sampling temperature."""
    top_p: float | None = None
    """The probability mass from which tokens are sampled."""
    frequency_penalty: float | None = None
    """The penalty for tokens by how often they occurred before."""
    presence_penalty: float | None = None
    """The penalty for tokens that occurred before."""
    tool_choice: ToolChoice | None = None
    """``auto``, ``required``, ``none``, the name of one tool, or a tool of an MCP server."""
    parallel_tool_calls: bool | None = None
    """Whether the model may ask for several tool calls in one answer."""
    truncation: Literal["auto", "disabled"] | None = None
    """Whether the provider may shorten an input that does not fit the context window."""
    max_tokens: int | None = None
    """The maximum number of tokens of the answer."""
    reasoning: Any | None = None
    """``openai.types.shared.Reasoning`` or the same as a dict, such as ``{"effort": "low"}``."""
    verbosity: Literal["low", "medium", "high"] | None = None
    """How long the answers should be."""
    metadata: dict[str, str] | None = None
    """Labels that the provider stores with the answer."""
    store: bool | None = None
    """Whether the provider keeps the answer for later retrieval."""
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    """How long the provider keeps the cached part of a prompt."""
    include_usage: bool | None = None
    """Whether a streamed answer of the Chat Completions API reports its tokens."""
    response_include: list[str] | None = None
    """Additional parts that the provider should include in its answer."""
    top_logprobs: int | None = None
    """How many of the most likely tokens to report at each position."""
    extra_query: Mapping[str, Any] | None = None
    """Additional parameters of the request's URL."""
    extra_body: Any | None = None
    """Additional fields of the request's body; they replace those of the same name."""
    extra_headers: Mapping[str, Any] | None = None
    """Additional headers of the request."""
    extra_args: dict[str, Any] | None = None
    """Passed unchanged to the provider's call; ``resolve`` merges them key by key."""
    retry: ModelRetrySettings | None = None
    """How often and when a failed call is repeated."""
    context_management: list[Any] | None = None
    """Rules by which the provider compacts a long context."""
    prompt_cache_options: Any | None = None
    """Options of the provider's prompt cache."""
    preserve_raw_usage: bool | None = None
    """Whether ``ModelResponse.raw_usage`` keeps the usage as the provider reported it."""
    timeout: float | None = None
    """The time limit of one model call in seconds; after it, ``ModelTimeoutError``."""

    def __post_init__(self) -> None:
        if isinstance(self.reasoning, Mapping):
            self.reasoning = Reasoning(self.reasoning)
        if isinstance(self.retry, Mapping):
            self.retry = ModelRetrySettings(**self.retry)
        if isinstance(self.tool_choice, Mapping):
            self.tool_choice = MCPToolChoice(**self.tool_choice)
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in allowed:
                options = " or ".join(map(repr, allowed))
                raise ValueError(f"ModelSettings.{name} must be {options}, not {value!r}.")
        for name in (*_NUMBERS, "timeout"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, int | float):
                raise ValueError(f"ModelSettings.{name} must be a number, not {value!r}.")
        if self.timeout is not None and not (self.timeout > 0 and math.isfinite(self.timeout)):
            raise ValueError(
                f"ModelSettings.timeout must be seconds greater than 0, not {self.timeout!r}. "
                "Leave it None for no limit."
            )

    @classmethod
    def coerce(cls, value: ModelSettings | Mapping[str, Any]) -> ModelSettings:
        """Return the settings unchanged, or make them from a dict.

        Args:
            value: Settings, or a dict with their names.

        Returns:
            The settings.

        Raises:
            TypeError: ``value`` is neither, or the dict has an unknown key.
        """
        if isinstance(value, ModelSettings):
            return value
        if not isinstance(value, Mapping):
            raise TypeError(f"Model settings must be ModelSettings or a dict, not {value!r}.")
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(value) - known)
        if unknown:
            raise TypeError(f"Unknown model settings: {', '.join(unknown)}")
        return cls(**value)

    def resolve(self, override: ModelSettings | Mapping[str, Any] | None) -> ModelSettings:
        """Combine these settings with others.

        Args:
            override: Settings whose values win where they are not ``None``. ``extra_args`` and
                ``retry`` are merged.

        Returns:
            New settings, or these if there is nothing to override.
        """
        if override is None:
            return self
        override = ModelSettings.coerce(override)
        changes = {f.name: v for f in fields(self) if (v := getattr(override, f.name)) is not None}
        if self.extra_args and override.extra_args:
            changes["extra_args"] = {**self.extra_args, **override.extra_args}
        if self.retry and override.retry:
            changes["retry"] = self.retry.resolve(override.retry)
        return replace(self, **changes)

    def to_json_dict(self) -> dict[str, Any]:
        """All settings as JSON, including those that are ``None``."""
        return {f.name: _to_json(getattr(self, f.name)) for f in fields(self)}

    def to_wire(self) -> dict[str, Any]:
        """The settings that are set, as JSON. ``ModelSettings.coerce`` reads it back."""
        wire = {name: value for name, value in self.to_json_dict().items() if value is not None}
        if "retry" in wire:
            wire["retry"] = {k: v for k, v in wire["retry"].items() if v is not None}
        return wire


def _to_json(value: Any) -> Any:
    if isinstance(value, ModelRetrySettings):
        return value.to_json_dict()
    if isinstance(value, MCPToolChoice):
        return asdict(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return value
