"""Code tells messages apart by their types, and every match names all of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import get_args

import pytest
from sandstream_actors import base
from sandstream_actors.harness import asks
from sandstream_actors.harness.asks import Ask
from sandstream_actors.harness.step_kinds import Step
from sandstream_bus.wire import subjects
from sandstream_bus.wire.calls import CALLS, CallKind, SandboxKind
from sandstream_bus.wire.conversations import ConversationEvent
from sandstream_bus.wire.memories import MemoryEvent, MemoryRequest
from sandstream_bus.wire.messages import CallRequested, RunEvent
from sandstream_bus.wire.sandboxes import SandboxAction, SandboxEvent
from sandstream_bus.wire.sessions import SessionMessage, SessionRequest
from sandstream_bus.wire.traces import TraceEvent
from support.sources import FOLDERS, ROOT, modules, nodes

from sandstream._hosting.user_code import HOST_CALLS

UNIONS: dict[str, UnionType] = {
    "RunEvent": RunEvent,
    "SandboxEvent": SandboxEvent,
    "SandboxAction": SandboxAction,
    "MemoryEvent": MemoryEvent,
    "MemoryRequest": MemoryRequest,
    "SessionRequest": SessionRequest,
    "SessionMessage": SessionMessage,
    "ConversationEvent": ConversationEvent,
    "TraceEvent": TraceEvent,
    "Step": Step,
    "Ask": Ask,
}
"""The unions over which every ``match`` names all members."""
MEMBERS = {member.__name__ for union in UNIONS.values() for member in get_args(union)}


def parsed(source: str) -> list[ast.AST]:
    return [*ast.walk(ast.parse(source))]


def where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def open_matches(found: list[ast.AST]) -> Iterator[ast.Match]:
    """The matches over a message union that do not end in ``assert_never``."""
    for node in found:
        if isinstance(node, ast.Match) and _names(node) & MEMBERS and not _is_closed(node):
            yield node


def _names(node: ast.Match) -> set[str]:
    patterns = (it for case in node.cases for it in ast.walk(case.pattern))
    return {ast.unparse(it.cls) for it in patterns if isinstance(it, ast.MatchClass)}


def _is_closed(node: ast.Match) -> bool:
    last = node.cases[-1]
    return (
        isinstance(last.pattern, ast.MatchAs)
        and last.pattern.pattern is None
        and last.guard is None
        and ast.unparse(last.body[-1]).startswith("assert_never(")
    )


def test_every_match_over_a_message_union_ends_in_assert_never() -> None:
    found = [where(path, node) for path in modules().values() for node in open_matches(nodes(path))]
    assert found == []


@pytest.mark.parametrize(
    "last", ["case RunDone():\n  pass", "case _:\n  pass", "case x if x:\n  assert_never(x)"]
)
def test_a_match_that_may_forget_a_message_is_found(last: str) -> None:
    source = f"match event:\n case RunStarted():\n  pass\n {last}"
    assert list(open_matches(parsed(source)))


def test_every_message_of_the_bus_is_in_a_union_that_is_checked() -> None:
    """A new family of events must be listed above."""
    from sandstream_bus.logs import codec

    decoded = {it for it in vars(codec) if it.endswith("Event")}
    assert decoded <= set(UNIONS)


def test_every_union_of_messages_is_checked() -> None:
    """A new union in the vocabulary must be listed above."""
    wire = FOLDERS["sandstream_bus"] / "wire"
    named = {
        node.targets[0].id
        for file in modules().values()
        if file.parent == wire
        for node in nodes(file)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id[0].isupper()
        and isinstance(node.value, ast.BinOp)
        and isinstance(node.value.op, ast.BitOr)
    }
    assert {"RunEvent", "SessionRequest"} <= named
    assert named - set(UNIONS) == set()


def test_every_run_event_can_be_handled_by_an_actor() -> None:
    assert set(base._KINDS) == set(get_args(RunEvent))


def test_every_subject_of_a_request_has_its_message() -> None:
    assert set(asks._KINDS) == {kind for _, kind in subjects._ASKS}
    assert set(asks._KINDS.values()) == set(get_args(Ask))
    assert {kind for family, kind in subjects._ASKS if family == "run"} == set(
        get_args(subjects.AskKind)
    )


# --- calls ----------------------------------------------------------------------------------------

KINDS = frozenset(get_args(CallKind))
TABLE = FOLDERS["sandstream_bus"] / "wire" / "calls.py"
COMMON = {"call", "kind", "turn", "agent", "reply_pool", "usage", "attempt"}
"""The fields of every request."""
CARRIERS = {"delivery", "stored", "message"}
"""Names of objects whose ``data`` are the bytes of a message."""


def collections(tree: ast.AST) -> Iterator[tuple[str, set[str]]]:
    """The collections of texts that a module names at its top level; of a dict its keys."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name):
            yield target.id, _texts(value)


def _texts(node: ast.AST) -> set[str]:
    parts = node.keys if isinstance(node, ast.Dict) else [node]
    found = (it for part in parts if part is not None for it in ast.walk(part))
    return {it.value for it in found if isinstance(it, ast.Constant) and isinstance(it.value, str)}


def compared_kinds(found: list[ast.AST], named: dict[str, set[str]]) -> Iterator[ast.AST]:
    """Comparisons of a call's kind, and matches over kinds that may forget one."""
    for node in found:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(_is_kind, sides)) and any(_are_call_kinds(it, named) for it in sides):
                yield node
        elif isinstance(node, ast.Match) and _is_kind(node.subject):
            texts = {text for case in node.cases for text in _texts(case.pattern)}
            if texts and texts <= KINDS and not _is_closed(node):
                yield node


def _is_kind(node: ast.AST) -> bool:
    return (isinstance(node, ast.Name) and node.id == "kind") or (
        isinstance(node, ast.Attribute) and node.attr == "kind"
    )


def _are_call_kinds(node: ast.AST, named: dict[str, set[str]]) -> bool:
    """One of the texts is a kind of call; a collection with a name has no others."""
    if isinstance(node, ast.Name):
        return bool(named.get(node.id)) and named[node.id] <= KINDS
    return bool(_texts(node) & KINDS)


def sniffed(found: list[ast.AST]) -> Iterator[ast.AST]:
    """Places that search the bytes of a message instead of decoding it."""
    for node in found:
        if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.In | ast.NotIn):
            continue
        whole = node.comparators[0]
        if isinstance(whole, ast.Call) and ast.unparse(whole.func) == "bytes":
            yield node  # bytes(tool.definition): a part of a message
        if isinstance(whole, ast.Attribute) and whole.attr == "data":
            owner = ast.unparse(whole.value).rpartition(".")[2]
            if owner in CARRIERS:
                yield node


def comparisons() -> Iterator[str]:
    sources = {path: nodes(path) for path in modules().values() if path != TABLE}
    named = {path: dict(collections(found[0])) for path, found in sources.items()}
    public: dict[str, set[str]] = {}
    for names in named.values():
        public |= {name: it for name, it in names.items() if not name.startswith("_")}
    for path, found in sources.items():
        for node in compared_kinds(found, public | named[path]):
            yield where(path, node)


def test_no_code_compares_the_kinds_of_calls() -> None:
    assert list(comparisons()) == []


@pytest.mark.parametrize(
    "source",
    [
        'call.kind == "guard"',
        '"tool" != kind',
        'event.event.kind in ("tool", "child")',
        "call.kind not in _LIFE",
        'match call.kind:\n case "tool":\n  pass\n case _:\n  pass',
    ],
)
def test_a_comparison_of_kinds_is_found(source: str) -> None:
    assert list(compared_kinds(parsed(source), {"_LIFE": {"open", "close"}}))


def test_no_code_searches_the_bytes_of_messages() -> None:
    found = [where(path, node) for path in modules().values() for node in sniffed(nodes(path))]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "b'\"guard\"' in delivery.data",
        "sign not in it.stored.data",
        "b'custom' in bytes(tool.definition)",
    ],
)
def test_a_search_in_the_bytes_of_a_message_is_found(source: str) -> None:
    assert list(sniffed(parsed(source)))


def test_every_kind_of_call_has_a_row_and_a_handler() -> None:
    assert set(CALLS) == KINDS
    sandbox = {kind for kind, traits in CALLS.items() if traits.is_sandbox}
    assert sandbox == set(get_args(SandboxKind))
    hosted = {kind for kind, it in CALLS.items() if it.owner == "tool_host" and not it.is_tool}
    assert hosted == {*HOST_CALLS, "model"}


def test_the_fields_of_requests_are_those_of_the_message() -> None:
    fields = set(CallRequested.__struct_fields__)
    named = {name for traits in CALLS.values() for name in traits.request}
    assert named | COMMON == fields
    assert not named & COMMON
