"""Model settings, retries and default models."""

import asyncio
from dataclasses import fields
from typing import Any

import pytest
from openai.types.shared import Reasoning as OpenAIReasoning

from sandstream.model_settings import MCPToolChoice, ModelSettings
from sandstream.models import get_default_model, get_default_model_settings, is_gpt_5_default
from sandstream.retry import (
    ModelRetryAdvice,
    ModelRetryBackoffSettings,
    ModelRetryNormalizedError,
    ModelRetrySettings,
    RetryDecision,
    RetryPolicy,
    RetryPolicyContext,
    decide,
    retry_policies,
)


def test_every_setting_is_unset_by_default() -> None:
    assert [f.name for f in fields(ModelSettings)] == [
        "temperature",
        "top_p",
        "frequency_penalty",
        "presence_penalty",
        "tool_choice",
        "parallel_tool_calls",
        "truncation",
        "max_tokens",
        "reasoning",
        "verbosity",
        "metadata",
        "store",
        "prompt_cache_retention",
        "include_usage",
        "response_include",
        "top_logprobs",
        "extra_query",
        "extra_body",
        "extra_headers",
        "extra_args",
        "retry",
        "context_management",
        "prompt_cache_options",
        "preserve_raw_usage",
        "timeout",
    ]
    assert ModelSettings().to_wire() == {}
    assert set(ModelSettings().to_json_dict().values()) == {None}


def test_resolve_replaces_what_is_set_and_merges_extra_args() -> None:
    base = ModelSettings(temperature=1, extra_args={"a": 1, "b": 2}, extra_body={"a": 1}, top_p=0.5)
    override = ModelSettings(temperature=0, extra_args={"b": 3}, extra_body={"b": 2})
    resolved = base.resolve(override)
    assert resolved == ModelSettings(
        temperature=0, extra_args={"a": 1, "b": 3}, extra_body={"b": 2}, top_p=0.5
    )
    assert base.extra_args == {"a": 1, "b": 2}
    assert base.resolve(None) is base
    assert base.resolve({"top_p": 1}).top_p == 1
    assert base.resolve(ModelSettings()) == base


def test_resolve_merges_retry_field_by_field() -> None:
    policy = retry_policies.never()
    base = ModelRetrySettings(2, ModelRetryBackoffSettings(initial_delay=1, jitter=True), policy)
    override = ModelRetrySettings(5, ModelRetryBackoffSettings(max_delay=9))
    retry = ModelSettings(retry=base).resolve(ModelSettings(retry=override)).retry
    assert retry is not None
    assert (retry.max_retries, retry.policy) == (5, policy)
    assert retry.backoff == ModelRetryBackoffSettings(initial_delay=1, max_delay=9, jitter=True)


def test_unknown_keys_are_a_type_error() -> None:
    with pytest.raises(TypeError, match="Unknown model settings: bar, foo"):
        ModelSettings.coerce({"foo": 1, "bar": 2})
    with pytest.raises(TypeError, match="nope"):
        ModelSettings().resolve({"nope": 1})


@pytest.mark.parametrize(
    "reasoning", [{"effort": "low"}, OpenAIReasoning(effort="low")], ids=["dict", "openai"]
)
def test_the_wire_form_reads_back(reasoning: Any) -> None:
    settings = ModelSettings(
        temperature=0.5,
        tool_choice=MCPToolChoice(server_label="s", name="n"),
        reasoning=reasoning,
        retry=ModelRetrySettings(max_retries=2, policy=retry_policies.never()),
        store=False,
        timeout=3,
    )
    wire = settings.to_wire()
    assert wire == {
        "temperature": 0.5,
        "tool_choice": {"server_label": "s", "name": "n"},
        "reasoning": {"effort": "low"},
        "store": False,
        "retry": {"max_retries": 2},
        "timeout": 3,
    }
    again = ModelSettings.coerce(wire)
    assert again.to_wire() == wire
    assert again.tool_choice == MCPToolChoice(server_label="s", name="n")
    assert again.reasoning.effort == "low"  # type: ignore[union-attr]
    assert again.reasoning.summary is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "bad",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("inf")},
        {"verbosity": "loud"},
        {"truncation": "x"},
        {"temperature": "hot"},
        {"retry": {"max_retries": 1.5}},
        {"retry": {"backoff": {"initial_delay": -1}}},
    ],
)
def test_bad_values_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        ModelSettings(**bad)


def test_backoff_grows_to_its_ceiling() -> None:
    plain = ModelRetryBackoffSettings(jitter=False)
    assert [plain.delay_s(attempt) for attempt in (1, 2, 3, 4, 5, 9999)] == [
        0.25,
        0.5,
        1.0,
        2.0,
        2.0,
        2.0,
    ]
    jittered = [ModelRetryBackoffSettings().delay_s(1) for _ in range(200)]
    assert 0.21 < min(jittered) < max(jittered) < 0.29


def asked(
    policy: RetryPolicy, advice: ModelRetryAdvice | None = None, **normalized: Any
) -> RetryDecision:
    context = RetryPolicyContext(
        error=RuntimeError(),
        attempt=1,
        max_retries=3,
        stream=False,
        normalized=ModelRetryNormalizedError(**normalized),
        provider_advice=advice,
    )
    return asyncio.run(_decide(policy, context))


async def _decide(policy: RetryPolicy, context: RetryPolicyContext) -> RetryDecision:
    return await decide(policy, context)


def test_single_policies() -> None:
    assert not asked(retry_policies.never(), is_network_error=True).retry
    assert asked(retry_policies.network_error(), is_timeout=True).retry
    assert asked(retry_policies.http_status([429]), status_code=429).retry
    assert not asked(retry_policies.http_status([429]), status_code=500).retry
    assert asked(retry_policies.retry_after(), retry_after=3.0) == RetryDecision(True, delay=3.0)
    assert asked(
        retry_policies.provider_suggested(),
        ModelRetryAdvice(suggested=True, retry_after=2.0, reason="busy"),
    ) == RetryDecision(True, delay=2.0, reason="busy")


def test_combined_policies() -> None:
    either = retry_policies.any(retry_policies.http_status([429]), retry_policies.retry_after())
    both = retry_policies.all(retry_policies.http_status([429]), retry_policies.retry_after())
    assert asked(either, status_code=429) == RetryDecision(True)
    assert asked(either, status_code=429, retry_after=3.0) == RetryDecision(True, delay=3.0)
    assert not asked(both, status_code=429).retry
    assert asked(both, status_code=429, retry_after=3.0) == RetryDecision(True, delay=3.0)
    assert not asked(retry_policies.any()).retry
    assert not asked(retry_policies.all()).retry


def test_the_providers_no_binds_the_other_policies() -> None:
    either = retry_policies.any(retry_policies.network_error(), retry_policies.provider_suggested())
    advice = ModelRetryAdvice(suggested=False, reason="no")
    assert asked(either, advice, is_network_error=True) == RetryDecision(False, reason="no")


def test_a_request_with_server_state_is_stateful() -> None:
    normalized = ModelRetryNormalizedError()
    context = RetryPolicyContext(RuntimeError(), 1, 1, False, normalized, conversation_id="c")
    assert context.stateful_request
    assert context.replay_safety == "unknown"


@pytest.mark.parametrize(
    ("model", "effort", "verbosity"),
    [
        ("gpt-5", "low", "low"),
        ("gpt-5-2025-08-07", "low", "low"),
        ("gpt-5-mini", None, "low"),
        ("gpt-5.1", "none", "low"),
        ("gpt-5.2-codex", "low", "low"),
        ("gpt-5.2-pro-2025-12-11", "medium", "low"),
        ("gpt-5.3-codex", "none", "low"),
        ("gpt-5.4-nano", "none", "low"),
        ("gpt-5.6-luna", "none", "low"),
        ("gpt-5.6-luna-pro", None, "low"),
        ("gpt-5.1-chat-latest", None, None),
        ("gpt-4o", None, None),
        ("openai/gpt-5", None, None),
    ],
)
def test_implicit_settings(model: str, effort: str | None, verbosity: str | None) -> None:
    expected: dict[str, Any] = {"verbosity": verbosity} if verbosity else {}
    if effort:
        expected["reasoning"] = {"effort": effort}
    assert get_default_model_settings(model).to_wire() == expected


def test_the_default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_DEFAULT_MODEL", raising=False)
    assert get_default_model() == "gpt-5.6-luna"
    assert is_gpt_5_default()
    monkeypatch.setenv("OPENAI_DEFAULT_MODEL", "GPT-4o")
    assert get_default_model() == "gpt-4o"
    assert get_default_model_settings() == ModelSettings()
