"""Keeps long conversations within a model's context window.

The model's own service compacts the conversation: this capability requests it, and removes the
items that a compacted conversation replaces. Works only with the Responses API of OpenAI.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, field_serializer, field_validator

from sandstream.sandbox.capabilities.capability import Capability
from sandstream.sandbox.capabilities.context_windows import context_window_of

DEFAULT_THRESHOLD = 240_000


class CompactionModelInfo(BaseModel):
    """The required data about a model."""

    context_window: int
    """How many tokens the model can read."""

    @classmethod
    def maybe_for_model(cls, model: str) -> CompactionModelInfo | None:
        """The data of a known model.

        Args:
            model: The name of the model.

        Returns:
            The data; ``None`` if the model is unknown.
        """
        window = context_window_of(model)
        return None if window is None else cls(context_window=window)

    @classmethod
    def for_model(cls, model: str) -> CompactionModelInfo:
        """The data of a known model.

        Args:
            model: The name of the model.

        Returns:
            The data.

        Raises:
            ValueError: The model is unknown.
        """
        info = cls.maybe_for_model(model)
        if info is None:
            raise ValueError(
                f"Unknown context window for model: {model!r}. Give it: "
                "CompactionModelInfo(context_window=...)."
            )
        return info


class CompactionPolicy(BaseModel, abc.ABC):
    """When to compact."""

    type: Any
    """A text; each subclass narrows it to its own literal."""

    @abc.abstractmethod
    def compaction_threshold(self, sampling_params: dict[str, Any]) -> int:
        """The number of tokens at which the conversation is compacted.

        Args:
            sampling_params: The parameters of the model request, among them the name of the
                ``model``.
        """


class StaticCompactionPolicy(CompactionPolicy):
    """At a fixed number of tokens."""

    type: Literal["static"] = "static"
    threshold: int = Field(default=DEFAULT_THRESHOLD)
    """The number of tokens."""

    def compaction_threshold(self, sampling_params: dict[str, Any]) -> int:
        return self.threshold


class DynamicCompactionPolicy(CompactionPolicy):
    """At a fraction of the model's context window."""

    type: Literal["dynamic"] = "dynamic"
    model_info: CompactionModelInfo
    """The context window of the model."""
    threshold: float = Field(ge=0, le=1, default=0.9)
    """The fraction of the window."""

    def compaction_threshold(self, sampling_params: dict[str, Any]) -> int:
        return int(self.model_info.context_window * self.threshold)


_POLICIES: dict[object, type[CompactionPolicy]] = {
    "static": StaticCompactionPolicy,
    "dynamic": DynamicCompactionPolicy,
}


class Compaction(Capability):
    """Requests the compaction of long conversations.

    Example:
        Compaction(policy=StaticCompactionPolicy(threshold=100_000))
    """

    type: Literal["compaction"] = "compaction"
    policy: CompactionPolicy | None = Field(default=None)
    """None: based on the model's window if it is known, else at a fixed number of tokens."""

    @field_validator("policy", mode="before")
    @classmethod
    def _policy_of_its_type(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        policy = _POLICIES.get(value.get("type"))
        if policy is None:
            raise ValueError(f"Unsupported compaction policy type: {value.get('type')!r}")
        return policy.model_validate(dict(value))

    @field_serializer("policy", when_used="always")
    def _with_fields_of_its_type(self, policy: CompactionPolicy | None) -> dict[str, Any] | None:
        return None if policy is None else policy.model_dump()

    def sampling_params(self, sampling_params: dict[str, Any]) -> dict[str, Any]:
        policy = self.policy or _policy_for(sampling_params.get("model"))
        threshold = policy.compaction_threshold(sampling_params)
        return {"context_management": [{"type": "compaction", "compact_threshold": threshold}]}

    def process_context(self, context: list[Any]) -> list[Any]:
        """The items from the last compaction on.

        Args:
            context: The items of the conversation.
        """
        for index in range(len(context) - 1, -1, -1):
            item = context[index]
            kind = item.get("type") if isinstance(item, Mapping) else getattr(item, "type", None)
            if kind == "compaction":
                return context[index:]
        return context


def _policy_for(model: object) -> CompactionPolicy:
    info = CompactionModelInfo.maybe_for_model(model) if isinstance(model, str) else None
    if info is None:
        return StaticCompactionPolicy()
    return DynamicCompactionPolicy(model_info=info)
