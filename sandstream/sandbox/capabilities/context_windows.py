"""The context windows of OpenAI's models, in tokens."""

from __future__ import annotations

_WINDOWS: dict[int, str] = {
    1_047_576: """
        gpt-4.1 gpt-4.1-2025-04-14 gpt-4.1-mini gpt-4.1-mini-2025-04-14
        gpt-4.1-nano gpt-4.1-nano-2025-04-14
        gpt-5.4 gpt-5.4-2026-03-05 gpt-5.4-pro gpt-5.4-pro-2026-03-05
        gpt-5.5 gpt-5.5-2026-04-23 gpt-5.5-pro gpt-5.5-pro-2026-04-23
        gpt-5.6 gpt-5.6-sol gpt-5.6-terra gpt-5.6-luna
    """,
    400_000: """
        gpt-5 gpt-5-2025-08-07 gpt-5-codex gpt-5-mini gpt-5-mini-2025-08-07
        gpt-5-nano gpt-5-nano-2025-08-07 gpt-5-pro gpt-5-pro-2025-10-06
        gpt-5.1 gpt-5.1-2025-11-13 gpt-5.1-codex gpt-5.1-codex-max gpt-5.1-codex-mini
        gpt-5.2 gpt-5.2-2025-12-11 gpt-5.2-codex gpt-5.2-pro gpt-5.2-pro-2025-12-11
        gpt-5.3-codex
        gpt-5.4-mini gpt-5.4-mini-2026-03-17 gpt-5.4-nano gpt-5.4-nano-2026-03-17
    """,
    200_000: """
        codex-mini-latest o1 o1-2024-12-17 o1-pro o1-pro-2025-03-19
        o3 o3-2025-04-16 o3-deep-research o3-deep-research-2025-06-26
        o3-mini o3-mini-2025-01-31 o3-pro o3-pro-2025-06-10
        o4-mini o4-mini-2025-04-16 o4-mini-deep-research o4-mini-deep-research-2025-06-26
    """,
    128_000: """
        gpt-4o gpt-4o-2024-05-13 gpt-4o-2024-08-06 gpt-4o-2024-11-20
        gpt-4o-mini gpt-4o-mini-2024-07-18
        gpt-5-chat-latest gpt-5.1-chat-latest gpt-5.2-chat-latest gpt-5.3-chat-latest
    """,
}


def _key(model: str) -> str:
    """Normalize a name: dots, dashes and the vendor prefix vary."""
    return model.strip().lower().removeprefix("openai/").replace(".", "").replace("-", "")


_BY_KEY = {_key(model): window for window, models in _WINDOWS.items() for model in models.split()}


def context_window_of(model: str) -> int | None:
    """The context window of the model in tokens; None if unknown."""
    return _BY_KEY.get(_key(model))
