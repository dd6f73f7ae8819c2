"""The default model, and the settings of an agent that does not name a model.

For agents, the GPT-5 family answers best with little or no reasoning and short texts, but its
members accept different reasoning efforts. So a table has the effort for each known name; an
unknown member of the family gets only the verbosity, which all of them accept.
"""

from __future__ import annotations

import re

from sandstream_bus.environment import variable

from sandstream.model_settings import ModelSettings

__all__ = [
    "get_default_model",
    "get_default_model_settings",
    "gpt_5_reasoning_settings_required",
    "is_gpt_5_default",
]

DEFAULT_MODEL_ENV = "OPENAI_DEFAULT_MODEL"
FALLBACK_MODEL = "gpt-5.6-luna"

_DATED = r"(-\d{4}-\d{2}-\d{2})?"
"""The suffix of a pinned snapshot, as in ``gpt-5-2025-08-07``."""

_EFFORT_BY_NAME: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(rf"gpt-5{_DATED}"), "low"),
    (re.compile(rf"gpt-5\.[12]{_DATED}"), "none"),
    (re.compile(r"gpt-5\.2-codex"), "low"),
    (re.compile(rf"gpt-5\.[24]-pro{_DATED}"), "medium"),
    (re.compile(r"gpt-5\.3-codex"), "none"),
    (re.compile(rf"gpt-5\.4(-mini|-nano)?{_DATED}"), "none"),
    (re.compile(rf"gpt-5\.5{_DATED}"), "none"),
    (re.compile(rf"gpt-5\.6(-luna|-sol|-terra)?{_DATED}"), "none"),
)

_CHAT_TUNED = re.compile(r"gpt-5(\.[123])?-chat-latest")
"""Members of the family that are not reasoning models and reject these settings."""


def gpt_5_reasoning_settings_required(model_name: str) -> bool:
    """Whether ``model_name`` is a GPT-5 reasoning model.

    Args:
        model_name: The name as it is sent to the provider.
    """
    return model_name.startswith("gpt-5") and not _CHAT_TUNED.fullmatch(model_name)


def get_default_model() -> str:
    """The model of agents that name none: ``OPENAI_DEFAULT_MODEL``, else our choice."""
    return variable(DEFAULT_MODEL_ENV).lower() or FALLBACK_MODEL


def is_gpt_5_default() -> bool:
    """Whether the default model is a GPT-5 reasoning model."""
    return gpt_5_reasoning_settings_required(get_default_model())


def get_default_model_settings(model: str | None = None) -> ModelSettings:
    """New implicit settings for ``model`` (or the default model).

    Args:
        model: The name of the model; ``None`` is the default model.
    """
    name = get_default_model() if model is None else model
    if not gpt_5_reasoning_settings_required(name):
        return ModelSettings()
    for pattern, effort in _EFFORT_BY_NAME:
        if pattern.fullmatch(name):
            return ModelSettings(reasoning={"effort": effort}, verbosity="low")
    return ModelSettings(verbosity="low")
