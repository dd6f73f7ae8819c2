"""The settings of servers without any server: names, approval, limits, parameters."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest

from sandstream.exceptions import UserError
from sandstream.mcp import (
    ConnectedServers,
    MCPServerManager,
    MCPServerSse,
    MCPServerStdio,
    MCPServerStreamableHttp,
)
from sandstream.mcp.approval import approval_policy, needs_approval
from sandstream.mcp.limits import backoff_s
from sandstream.mcp.schemas import tool_schema
from sandstream.mcp.tool_names import ServerTool, prefixed_tool_names, safe_server_name


class _Tool(NamedTuple):
    name: str


@pytest.mark.parametrize(
    ("tools", "reserved", "names"),
    [
        ([("files", "read"), ("files", "write")], "", ["mcp_files__read", "mcp_files__write"]),
        ([("a b", "x"), ("a.b", "x")], "", ["mcp_a_b__x_faaf8e71", "mcp_a_b__x_d037d523"]),
        ([("same", "x")] * 2, "", ["mcp_same__x_c5764a3c", "mcp_same__x_5d0dd392"]),
        ([("files", "n" * 100)], "", [f"mcp_files__{'n' * 44}_454944d8"]),
        ([("files", "read")], "mcp_files__read", ["mcp_files__read_ff43ff89"]),
        ([("ü", "ß"), ("ü", "-")], "", ["mcp_server__tool_5bf7d6d2", "mcp_server__tool_1ec7c41c"]),
    ],
)
def test_prefixed_names(tools: list[tuple[str, str]], reserved: str, names: list[str]) -> None:
    """The hashes are those that users of the same interface know from elsewhere."""
    assert prefixed_tool_names([ServerTool(*each) for each in tools], {reserved}) == names


def test_a_tools_prefixed_name_does_not_depend_on_the_order() -> None:
    tools = [ServerTool("a b", "x"), ServerTool("a.b", "x"), ServerTool("c", "y")]
    there = dict(zip(tools, prefixed_tool_names(tools, set()), strict=True))
    back = dict(zip(tools[::-1], prefixed_tool_names(tools[::-1], set()), strict=True))
    assert there == back


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("sse: http://u:p@h/x?q#f", "sse: http://h/x"),
        ("streamable_http: https://h:99/p", "streamable_http: https://h:99/p"),
        ("http://u:p@[::1]:8/x", "http://[::1]:8/x"),
        ("sse: http://h:bad/", "sse: <invalid-url>"),
        ("http:///x", "<invalid-url>"),
        ("http://a b/", "<invalid-url>"),
        ("http://[", "<invalid-url>"),
        ("plain name", "plain name"),
        ("a [strange name", "a [strange name"),
    ],
)
def test_names_are_shown_without_credentials(name: str, safe: str) -> None:
    assert safe_server_name(name) == safe


@pytest.mark.parametrize(
    ("setting", "read", "write", "other"),
    [
        (None, False, False, False),
        (True, True, True, True),
        (False, False, False, False),
        ("always", True, True, True),
        ("never", False, False, False),
        ({"write": "always", "read": "never"}, False, True, False),
        ({"write": True}, False, True, False),
        ({"always": {"tool_names": ["write"]}}, False, True, False),
        ({"always": {"tool_names": ["write"]}, "never": {"tool_names": ["read"]}}, False, True, 0),
        ({"never": {"tool_names": ["read"]}}, False, False, False),
        ({"always": "always"}, False, False, False),
    ],
)
def test_forms_of_approval(setting: Any, read: bool, write: bool, other: bool) -> None:
    policy = approval_policy(setting)
    asked = [needs_approval(policy, _Tool(name), None) for name in ("read", "write", "other")]
    assert asked == [read, write, other]


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("sometimes", "at require_approval: expected 'always' or 'never', got 'sometimes'"),
        ({"x": "sometimes"}, r"at require_approval\['x'\]"),
        ({"always": {"tool_names": "x"}}, "expected a list of strings, got str"),
        ({"always": {"tool_names": [1]}}, r"always.tool_names\[0\]: expected a string, got int"),
        ({"always": {"tool_names": []}, "never": []}, "Invalid require_approval.never"),
        ({"always": {"tool_names": []}, "x": 1}, r"unexpected keys \['x'\]"),
        (
            {"always": {"tool_names": ["x"]}, "never": {"tool_names": ["x"]}},
            r"both always and never: \['x'\]",
        ),
    ],
)
def test_wrong_approval_is_an_error_at_once(setting: Any, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        MCPServerStdio({"command": "x"}, require_approval=setting)


def test_a_function_decides_only_for_an_agent() -> None:
    """Without one it cannot be asked, and a person must be."""
    policy = approval_policy(lambda run, agent, tool: False)
    assert needs_approval(policy, _Tool("x"), None) is True
    ask = needs_approval(policy, _Tool("x"), "agent")
    assert callable(ask)
    run: Any = None
    answer: Any = ask(run, {}, "call-1")
    assert asyncio.run(answer) is False


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("client_session_timeout_seconds", "5", TypeError),
        ("client_session_timeout_seconds", True, TypeError),
        ("client_session_timeout_seconds", -1, ValueError),
        ("client_session_timeout_seconds", float("inf"), ValueError),
        ("client_session_timeout_seconds", float("nan"), ValueError),
        ("client_session_timeout_seconds", 1e-9, ValueError),
        ("client_session_timeout_seconds", 1e300, ValueError),
        ("client_session_timeout_seconds", 10**400, ValueError),
        ("retry_backoff_seconds_max", "1", TypeError),
        ("retry_backoff_seconds_max", -1, ValueError),
        ("max_list_pages", True, TypeError),
        ("max_list_pages", 1.5, TypeError),
        ("max_list_pages", 0, ValueError),
    ],
)
def test_wrong_limits(option: str, value: Any, problem: type[Exception]) -> None:
    options = {option: value}
    with pytest.raises(problem, match=option):
        MCPServerSse({"url": "http://x"}, **options)


@pytest.mark.parametrize("value", [None, 0, 0.5, 5])
def test_right_limits(value: Any) -> None:
    server = MCPServerStdio({"command": "x"}, client_session_timeout_seconds=value)
    assert server.client_session_timeout_seconds == value


@pytest.mark.parametrize("option", ["connect_timeout_seconds", "cleanup_timeout_seconds"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), "1", True])
def test_wrong_limits_of_a_lifecycle(option: str, value: Any) -> None:
    options = {option: value}
    for cls in (MCPServerManager, ConnectedServers):
        with pytest.raises((TypeError, ValueError), match=f"{option} must be a positive"):
            cls([], **options)


def test_backoff() -> None:
    assert [backoff_s(0.5, None, taken) for taken in range(4)] == [0.5, 1, 2, 4]
    assert [backoff_s(1, 3, taken) for taken in (0, 1, 2, 10_000)] == [1, 2, 3, 3]


def test_default_names() -> None:
    assert MCPServerStdio({"command": "npx"}).name == "stdio: npx"
    assert MCPServerSse({"url": "http://h/sse"}).name == "sse: http://h/sse"
    assert MCPServerStreamableHttp({"url": "http://h"}).name == "streamable_http: http://h"
    assert MCPServerStdio({"command": "npx"}, name="files").name == "files"


@pytest.mark.parametrize("params", [{}, None, "npx", {"command": ["npx"]}])
def test_params_without_what_is_needed(params: Any) -> None:
    with pytest.raises(UserError, match="MCPServerStdio needs params with 'command'"):
        MCPServerStdio(params)


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({}, True),
        ({"properties": {}}, False),
        ({"type": "object", "additionalProperties": False}, True),
        (_object(x={"type": "string"}), True),
        (_object(x={}), True),
        (_object(x={"type": "object"}), False),
        (_object(x={"anyOf": [{"type": "object"}, {"type": "null"}]}), False),
        (_object(x={"type": "array", "items": {"type": "object"}}), False),
        (_object(x={"$ref": "#/$defs/A"}) | {"$defs": {"A": _object(y={})}}, False),
        (_object(x={"$ref": "#/$defs/A", "title": "T"}) | {"$defs": {"A": _object(y={})}}, True),
        (_object(x={"enum": [{"type": "object"}]}), True),
        ({"anyOf": [_object(x={})]}, False),
        (_object(x="nonsense"), False),
    ],
)
def test_which_schemas_can_be_strict(schema: dict[str, Any], strict: bool) -> None:
    converted, is_strict = tool_schema(schema, strict=True)
    assert is_strict is strict
    if not strict:
        assert converted == {"properties": {}, **schema}
    assert tool_schema(schema, strict=False) == ({"properties": {}, **schema}, False)
