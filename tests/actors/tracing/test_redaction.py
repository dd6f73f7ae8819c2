"""Secrets never leave; everything else stays as it is; a hook of the user's may say more."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import random
import sys
import types
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from sandstream_actors.secrets.patterns import MASK
from sandstream_actors.tracing.redaction import (
    InvalidRedactor,
    Redactor,
    load_redactor,
    scrub,
)
from sandstream_actors.tracing.span import Span, SpanEvent, SpanLink, Value


def made_of(prefix: str, alphabet: str, length: int) -> str:
    """A key that never was one: scanners of repositories need not worry."""
    return prefix + "".join(random.Random(prefix).choices(alphabet, k=length - 1)) + "7"


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
JWT = ".".join(
    base64.urlsafe_b64encode(part).decode().rstrip("=")
    for part in (b'{"alg":"HS256","typ":"JWT"}', b'{"sub":"1234567890"}', b"signature-bytes-12345")
)
KEYS = {
    "openai": made_of("sk-", LETTERS, 48),
    "openai project": made_of("sk-proj-", LETTERS + "_-", 100),
    "anthropic": made_of("sk-ant-api03-", LETTERS + "_-", 95),
    "stripe": made_of("sk_live_", LETTERS, 24),
    "aws": made_of("AKIA", UPPER, 16),
    "aws session": made_of("ASIA", UPPER, 16),
    "github": made_of("ghp_", LETTERS, 36),
    "github fine": made_of("github_pat_", LETTERS, 82),
    "gitlab": made_of("glpat-", LETTERS, 20),
    "slack": made_of("xoxb-", "0123456789", 12) + made_of("-", LETTERS, 24),
    "google": made_of("AIza", LETTERS, 35),
    "google oauth": made_of("ya29.", LETTERS, 60),
    "hugging face": made_of("hf_", LETTERS, 34),
    "npm": made_of("npm_", LETTERS, 36),
    "daytona": made_of("dtn_", "0123456789abcdef", 64),
    "e2b": made_of("e2b_", "0123456789abcdef", 40),
    "nats seed": made_of("SU", UPPER, 56),
    "jwt": JWT,
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize(
    "place",
    ["{}", "use {} please", "'{}'", "a={};", "line one\n{}\nline two", "escaped\\n{}", "({})."],
)
def test_known_keys_are_masked_wherever_they_stand(key: str, place: str) -> None:
    assert scrub(place.format(key)) == place.format(MASK)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("password=hunter2", "password=[redacted]"),
        ("DB_PASSWORD_PROD=a1", "DB_PASSWORD_PROD=[redacted]"),
        ("api_key: abc", "api_key: [redacted]"),
        ("api-key: 'a b c' rest", "api-key: '[redacted]' rest"),
        ('{"password": "a,b c", "user": "bob"}', '{"password": "[redacted]", "user": "bob"}'),
        (r'password: "a\"b" rest', 'password: "[redacted]" rest'),
        (r"{\"api_key\": \"abc\", \"x\": 1}", r"{\"api_key\": \"[redacted]\", \"x\": 1}"),
        ('password="never closed', 'password="[redacted]'),
        ("user=bob,password=a,b,host=x", "user=bob,password=[redacted],host=x"),
        ("(client_secret=abc)", "(client_secret=[redacted])"),
        ("?access_token=abc&page=2", "?access_token=[redacted]&page=2"),
        ("x?X-Amz-Signature=0123456789abcdef&y=1", "x?X-Amz-Signature=[redacted]&y=1"),
        ("aws_secret_access_key = abc/def+ghi", "aws_secret_access_key = [redacted]"),
        ("Authorization: Bearer abc", "Authorization: Bearer [redacted]"),
        ("'Authorization': 'Basic dXNlcjpw'", "'Authorization': 'Basic [redacted]'"),
        ("with bearer 0123456789abcdef0 sent", "with bearer [redacted] sent"),
        ("Cookie: session=abc; id=1\nHost: x", "Cookie: [redacted]\nHost: x"),
        ("postgres://bob:p@ss@db:5432/x", "postgres://bob:[redacted]@db:5432/x"),
        ("nats://0123456789abcdefghi@bus:4222", "nats://[redacted]@bus:4222"),
        ("https://hooks.slack.com/services/T0/B0/abc x", None),
        (
            "a\n-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4\n\nMII+/=\n"
            "-----END RSA PRIVATE KEY-----\nb",
            "a\n[redacted]\nb",
        ),
        ("cut -----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC", "cut [redacted]"),
        ("mysql --password hunter2 -u bob", "mysql --password [redacted] -u bob"),
        ("mysql --password=hunter2 -u bob", "mysql --password=[redacted] -u bob"),
        ("x --db-password 'a b' y", "x --db-password '[redacted]' y"),
        ("x --api-key abc1 --token a1b2c3d4e5", "x --api-key [redacted] --token [redacted]"),
        ('["mysql", "--password", "a,b c", "x"]', '["mysql", "--password", "[redacted]", "x"]'),
        (r"[\"--password\",\"hunter2\"]", r"[\"--password\",\"[redacted]\"]"),
        ("--password hunter2\\n--user", "--password [redacted]\\n--user"),
        ('{"password": ["a b", "c"], "x": 1}', '{"password": "[redacted]", "x": 1}'),
        ('{"password": {"value": "a"}, "x": 1}', '{"password": "[redacted]", "x": 1}'),
        ('x = {"password": ["a]b", [1], "c', 'x = {"password": "[redacted]'),
        ("{'passwords': ['a', 'b']}", "{'passwords': '[redacted]'}"),
        (
            '{"name": "DB_PASSWORD", "value": "a b", "x": 1}',
            '{"name": "DB_PASSWORD", "value": "[redacted]", "x": 1}',
        ),
        (
            r"{\"key\":\"API_KEY\",\"value\":\"abc\"}",
            r"{\"key\":\"API_KEY\",\"value\":\"[redacted]\"}",
        ),
        (
            "- name: DB_PASSWORD\n  value: hunter2\n- name: X",
            "- name: DB_PASSWORD\n  value: [redacted]\n- name: X",
        ),
        (
            "  password: >-\n    hunter2\n    and more\n  user: bob\n",
            "  password: >-\n    [redacted]\n  user: bob\n",
        ),
        ("COOKIE=sid=abc; b=c\nHost: x", "COOKIE=[redacted]\nHost: x"),
    ],
)
def test_values_that_their_place_gives_away(text: str, left: str | None) -> None:
    assert scrub(text) == (left or "https://hooks.slack.com/services/[redacted] x")
    assert scrub(scrub(text)) == scrub(text)


@pytest.mark.parametrize(
    "text",
    [
        hashlib.sha1(b"commit").hexdigest(),
        hashlib.sha256(b"digest").hexdigest(),
        str(uuid.UUID(int=7)),
        "run 01JABCDEF0123456789ABCDEFG took 3 turns",
        "data:image/png;base64," + base64.b64encode(random.Random(1).randbytes(3000)).decode(),
        "max_tokens=100, input_tokens: 5, token_count=7",
        "the next token: hello",
        "def login(password: str, token: str | None = None) -> bool:",
        "password: ${DB_PASSWORD}, api_key=os.environ['KEY'], secret: <your secret>",
        'password="" api_key=None',
        "a basic understanding of bearer certificates",
        "cookie: chocolate chip",
        "see https://example.com/a@b:c and mailto:bob@example.com, ssh://git@github.com/x",
        "task-sk-learn, risk-management-of-something-long, sk-",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
        "secretary: Bob, keyboard=qwertyuiop, monkey: bananas",
        "SUPERCALIFRAGILISTIC and AKIA",
        "passwords are bad. Tokens too.",
        "mysql --password-file /run/x --password-stdin --max-tokens 1000 --token-count 12345678",
        "the --password option, or --password PASSWORD; --password is read with --password -u bob",
        "--private-key ~/.ssh/id_rsa --private-key ./key.pem --password $DB_PASSWORD --password",
        '["--password-file", "/run/secret/file", "--max-tokens", "10000000"]',
        '{"password": null, "api_key": true, "secret": [], "credentials": {}, "total_tokens": 12}',
        '{"properties": {"password": {"type": "string"}, "api_key": {"$ref": "#/x"}}}',
        '{"required": ["password", "token"], "name": "password", "value": null}',
        '{"name": "max_tokens", "value": "12345678"}, {"name": "user", "value": "somebody"}',
        "total_tokens: |\n  12345678\n",
        '{"token": ["the", "next"], "signature": {"of": "something"}}',
        "signature: |\n  def f(a, b): ...",
        "ünïcödé \x00 \ud800 \U0001f600 {[(",
        "",
    ],
)
def test_the_rest_stays_byte_for_byte(text: str) -> None:
    assert scrub(text) == text


@pytest.mark.parametrize(
    "piece",
    [
        'password="',
        "password=\\",
        "token=a,",
        "token=((((",
        "key=,a,a",
        "sk-",
        "eyJaaaaaaaaaaaaa.",
        "://a:",
        "://1111111111111111",
        "-----BEGIN PRIVATE KEY-----",
        "bearer ",
        "cookie: a",
        "a",
        "--password ",
        "--password '",
        "--a-a-a-a-",
        '"password": [',
        '"password": ["a",',
        '"password": {"a":',
        '"name": "password", "value": "',
        '"name": "',
        "name: password",
        "password: |\n a\n",
        "password: >\n  ",
        "password" + "\\" * 64,
        "password=" + "\\" * 63 + '"',
    ],
)
def test_hostile_text_is_done_within_the_limit(piece: str) -> None:
    """With work that grows faster than the text, it would take minutes."""
    scrub(piece * (400_000 // len(piece)))


# --- spans -----------------------------------------------------------------------------------


def span(**more: Any) -> Span:
    fields: dict[str, Any] = {
        "trace_id": "a" * 32,
        "span_id": "b" * 16,
        "name": "execute_tool f",
        "operation": "tool",
        "start_ns": 1,
        "end_ns": 2,
        "first_seq": 3,
    }
    return Span(**(fields | more))


def test_every_text_of_a_span_is_scrubbed() -> None:
    secret = KEYS["openai"]
    leaky = span(
        name=f"custom {secret}",
        agent=secret,
        error=secret,
        error_message=f"401 for {secret}",
        attributes={"a": secret, "n": 1, "l": [secret], secret: True},
        contents={"c": json.dumps({"x": secret})},
        events=[SpanEvent(name=secret, time_ns=1, attributes={"a": secret})],
        links=[SpanLink(trace_id="a" * 32, span_id="c" * 16, attributes={"a": secret})],
    )
    clean = Redactor().redact_span(leaky)
    assert secret not in repr(clean)
    assert clean == span(
        name=f"custom {MASK}",
        agent=MASK,
        error=MASK,
        error_message=f"401 for {MASK}",
        attributes={"a": MASK, "n": 1, "l": [MASK], MASK: True},
        contents={"c": json.dumps({"x": MASK}, separators=(",", ":"))},
        events=[SpanEvent(name=MASK, time_ns=1, attributes={"a": MASK})],
        links=[SpanLink(trace_id="a" * 32, span_id="c" * 16, attributes={"a": MASK})],
    )
    assert secret in repr(leaky), "the span that was given is not touched"


def test_clean_span_stays_equal() -> None:
    clean = span(
        attributes={"a": "b"}, contents={"c": "[]"}, error="tool_error", error_message="no"
    )
    assert Redactor().redact_span(clean) == clean


def test_hook_changes_and_drops_after_the_mask() -> None:
    seen: list[tuple[str, Value, str]] = []

    def hook(name: str, value: Value, of: Span) -> Value | None:
        seen.append((name, value, of.operation))
        if name == "user.email":
            return None
        return value.replace("Bob", "B.") if isinstance(value, str) else value

    found = Redactor(hook).redact_span(
        span(
            attributes={"user.email": "bob@x.test", "n": 1},
            contents={"c": "Bob: password=abc"},
            error_message="Bob failed",
        )
    )
    assert found.attributes == {"n": 1}
    assert found.contents == {"c": "B.: password=[redacted]"}
    assert found.error_message == "B. failed"
    assert ("c", "Bob: password=[redacted]", "tool") in seen


def test_broken_hook_loses_the_attribute_says_so_once_and_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def hook(name: str, value: Value, of: Span) -> Any:
        if name == "bad":
            raise RuntimeError(f"cannot redact {value}")
        return object() if name == "odd" else value

    redactor = Redactor(hook)
    leaky = span(attributes={"good": 1, "odd": "x"}, contents={"bad": "very private"})
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            found = redactor.redact_span(leaky)
            assert (found.attributes, found.contents) == ({"good": 1}, {})
    assert redactor.dropped == 6
    assert len(caplog.records) == 1
    assert "very private" not in caplog.text


# --- loading ---------------------------------------------------------------------------------


@pytest.fixture
def privacy() -> Iterator[types.ModuleType]:
    module = types.ModuleType("privacy_for_test")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def test_hook_is_loaded_by_name(privacy: types.ModuleType) -> None:
    def no_contents(name: str, value: Value, of: Span) -> Value | None:
        return None if name in of.contents else value

    privacy.rules = types.SimpleNamespace(no_contents=no_contents)  # type: ignore[attr-defined]
    redactor = load_redactor("privacy_for_test:rules.no_contents")
    assert redactor.hook is no_contents
    assert redactor.redact_span(span(contents={"c": "x"})).contents == {}
    assert load_redactor("").hook is None
    assert load_redactor(None).hook is None


async def _async_hook(name: str, value: Value, of: Span) -> Value | None:
    return value


@pytest.mark.parametrize(
    ("spec", "hook", "message"),
    [
        ("nonsense", None, "not of the form module:function"),
        ("no_such_module_xyz:f", None, "cannot be imported .*ModuleNotFoundError"),
        ("privacy_for_test:missing", None, "has no 'missing'"),
        ("privacy_for_test:hook", 7, "is a int, no function"),
        ("privacy_for_test:hook", _async_hook, "is async"),
        ("privacy_for_test:hook", lambda name: name, "must take \\(name, value, span\\)"),
    ],
)
def test_what_is_no_hook_is_refused(
    privacy: types.ModuleType, spec: str, hook: object, message: str
) -> None:
    if hook is not None:
        privacy.hook = hook  # type: ignore[attr-defined]
    with pytest.raises(InvalidRedactor, match=message):
        load_redactor(spec)


def test_a_quick_look_at_many_spans_misses_no_secret() -> None:
    """The short cut for spans without secrets must see what the careful way would take out."""
    clean = Span(
        trace_id="a" * 32,
        span_id="b" * 16,
        name="chat m",
        operation="chat",
        start_ns=1,
        attributes={"gen_ai.usage.input_tokens": 5, "gen_ai.request.model": "m"},
    )
    assert Redactor().redact_spans([clean, clean])[0] is clean
    hidden = "sk-proj-a1b2c3d4e5f6a7b8c9d0e1f2"
    dirty = [
        msgspec.structs.replace(clean, error_message=f"no: {hidden}"),
        msgspec.structs.replace(clean, name=hidden),
        msgspec.structs.replace(clean, attributes={"x": [hidden]}),
        msgspec.structs.replace(clean, attributes={"password": "hunter2"}),
        msgspec.structs.replace(clean, contents={"said": hidden}),
        msgspec.structs.replace(
            clean, events=[SpanEvent(name="e", time_ns=1, attributes={"y": hidden})]
        ),
    ]
    for span in dirty:
        found = str(Redactor().redact_spans([clean, span])[1])
        assert hidden not in found and "hunter2" not in found
