"""JSON without secrets: each value is looked at by itself and under its own name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sandstream_actors.secrets.patterns import MASK
from sandstream_actors.tracing.redaction import scrub, scrub_value

GITHUB = "ghp_" + "a1B2" * 9


def test_json_stays_json_and_is_looked_at_by_name() -> None:
    value = {
        "user": "bob",
        "password": 'a"b\\c',
        "apiKey": "abc",
        "nested": [{"auth_token": "x", "n": 1.50, "text": f"use {GITHUB}"}],
        "inner": json.dumps({"password": 'q"r', "keep": True}),
        "schema": {"password": {"type": "string"}},
        "token": "short",
        "tokens": ["one", "two"],
    }
    found = scrub_value("gen_ai.tool.call.arguments", json.dumps(value))
    assert isinstance(found, str)
    assert json.loads(found) == {
        **value,
        "password": MASK,
        "apiKey": MASK,
        "nested": [{"auth_token": MASK, "n": 1.5, "text": f"use {MASK}"}],
        "inner": '{"password":"[redacted]","keep":true}',
    }


def nested(text: str, times: int) -> str:
    return text if times == 0 else json.dumps({"x": nested(text, times - 1)})


@pytest.mark.parametrize("times", range(6))
def test_json_in_json_in_json(times: int) -> None:
    text = nested(json.dumps({"password": "hunter2", "user": "bob"}), times)
    for found in (scrub(text), scrub_value("x", text)):
        assert isinstance(found, str)
        assert "hunter2" not in found
        assert "bob" in found
        json.loads(found)


def test_values_of_any_kind_are_masked_by_their_names() -> None:
    value: dict[str, Any] = {
        "password": 123456,
        "api_key": [1, "a", {"b": "c"}],
        "credentials": {"user": "bob", "pass": "abc"},
        "token": {"kind": "jwt", "value": "abcdefgh1"},
        "client_secret": 1.5,
        "env": [{"name": "DB_PASSWORD", "value": "abc"}, {"Key": "API_KEY", "Value": 5}],
        "headers": {"Cookie": "sid=abc", "authorization": "abc", "Set-Cookie": ["a=b; Path=/"]},
        "argv": ["mysql", "--password", "abc", "--user", "bob", "--api-key=abc"],
    }
    found = scrub_value("gen_ai.tool.call.arguments", json.dumps(value))
    assert isinstance(found, str)
    assert json.loads(found) == {
        "password": MASK,
        "api_key": MASK,
        "credentials": MASK,
        "token": {"kind": "jwt", "value": MASK},
        "client_secret": MASK,
        "env": [{"name": "DB_PASSWORD", "value": MASK}, {"Key": "API_KEY", "Value": MASK}],
        "headers": {"Cookie": MASK, "authorization": MASK, "Set-Cookie": [MASK]},
        "argv": ["mysql", "--password", MASK, "--user", "bob", f"--api-key={MASK}"],
    }


def test_what_is_no_secret_in_spite_of_its_name_stays() -> None:
    value = {
        "password": None,
        "api_key": True,
        "secret": "",
        "credentials": {},
        "passphrase": [],
        "token": 12,
        "max_tokens": 4096,
        "total_tokens": 123456789,
        "usage": {"output_tokens_details": {"reasoning_tokens": 123456789}},
        "cookie": "chocolate chip",
        "authorization": None,
        "env": [{"name": "USER", "value": "somebody"}, {"name": "password"}],
        "schema": {"password": {"type": "string"}, "api_key": {"anyOf": [{"type": "null"}]}},
        "argv": ["mysql", "--password-file", "/run/x", "--max-tokens", "12345678", "--password"],
        "required": ["password"],
    }
    text = json.dumps(value)
    assert scrub_value("x", text) is text


def test_json_without_secrets_is_not_written_anew() -> None:
    text = '{ "n": 1.50,\n "list": [ 1e3, "a" ] }'
    assert scrub_value("x", text) is text


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a": "\\ud800"}', "{", "[1" + "0" * 5000],
)
def test_what_is_not_json_is_scrubbed_as_text(text: str) -> None:
    assert scrub_value("x", text) == text
    assert scrub_value("x", f"{text} password=abc") == f"{text} password=[redacted]"


def test_what_is_nested_too_deep_to_be_looked_at_does_not_leave() -> None:
    text = "[" * 100 + '"password=abc"' + "]" * 100
    found = scrub_value("x", text)
    assert isinstance(found, str)
    assert "abc" not in found
    json.loads(found)


def test_attributes_are_masked_by_their_names() -> None:
    assert scrub_value("sandstream.metadata.api_key", "abc") == MASK
    assert scrub_value("sandstream.metadata.tokens", 5) == 5
    assert scrub_value("gen_ai.usage.input_tokens", 12) == 12
    assert scrub_value("headers", ["a=1", "password=x"]) == ["a=1", f"password={MASK}"]
