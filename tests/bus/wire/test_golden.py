"""Every released shape of every message is decoded for ever.

The files in ``tests/golden/v1`` were written by the writer of their day and are never changed. A
new message, or a new field worth keeping, gets a new file beside them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from sandstream_bus.wire import conversations as conversation_messages
from sandstream_bus.wire import memories as memory_messages
from sandstream_bus.wire import messages
from sandstream_bus.wire import sandboxes as sandbox_messages
from sandstream_bus.wire import sessions as session_messages
from sandstream_bus.wire import traces as trace_messages
from sandstream_bus.wire.conversations import ConversationEvent
from sandstream_bus.wire.conversations import Message as ConversationMessage
from sandstream_bus.wire.memories import MemoryEvent
from sandstream_bus.wire.memories import Message as MemoryMessage
from sandstream_bus.wire.messages import (
    ChildInput,
    HandedOff,
    History,
    LiveEvent,
    Message,
    Prepared,
    Reviewed,
    RunEvent,
    StopDecision,
    Task,
)
from sandstream_bus.wire.open_runs import OpenRun
from sandstream_bus.wire.sandboxes import LiveOutput, SandboxAction, SandboxEvent
from sandstream_bus.wire.sandboxes import Message as SandboxMessage
from sandstream_bus.wire.sessions import REQUEST_KINDS, Request
from sandstream_bus.wire.traces import Message as TraceMessage
from sandstream_bus.wire.traces import TraceEvent

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("v[0-9]*/*.json"))
UNTAGGED: dict[str, type[msgspec.Struct]] = {
    "task": Task,
    "prepared": Prepared,
    "stop.decision": StopDecision,
    "reviewed": Reviewed,
    "handed.off": HandedOff,
    "child.input": ChildInput,
    "history": History,
    "live.event": LiveEvent,
    "live.output": LiveOutput,
    "open.run": OpenRun,
    **{f"session.{name}": kind for name, kind in REQUEST_KINDS.items()},
}
MODULES = (
    messages,
    sandbox_messages,
    conversation_messages,
    trace_messages,
    memory_messages,
    session_messages,
)
BASES = (Message, SandboxMessage, ConversationMessage, TraceMessage, MemoryMessage)
TAGGED: dict[str, type[msgspec.Struct]] = {
    str(kind.__struct_config__.tag): kind
    for module in MODULES
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, BASES) and kind not in BASES
}
KINDS = TAGGED | UNTAGGED


def kind_of(path: Path) -> type[msgspec.Struct]:
    """``run.done.least.json`` is a ``run.done``."""
    name = path.stem
    while name not in KINDS:
        name = name.rpartition(".")[0]
    return KINDS[name]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_decodes_and_keeps_its_meaning(path: Path) -> None:
    data = path.read_bytes()
    message = msgspec.json.decode(data, type=kind_of(path))
    assert json.loads(msgspec.json.encode(message)) == json.loads(data)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_unknown_fields_are_ignored(path: Path) -> None:
    kind = kind_of(path)
    document = json.loads(path.read_bytes())
    newer = document | {"zz_future": {"a": [1]}}
    if "graph" in document:
        newer["graph"] = dict(document["graph"])
        newer["graph"]["zz_future"] = 1
        agents = document["graph"]["agents"]
        newer["graph"]["agents"] = {k: v | {"zz_future": []} for k, v in agents.items()}
    for name in ("usage", "error", "options"):
        if isinstance(document.get(name), dict):
            newer[name] = document[name] | {"zz_future": None}
    if kind is Task or issubclass(
        kind, Request
    ):  # written by people: a misspelt limit would be no limit
        with pytest.raises(msgspec.ValidationError, match="zz_future"):
            msgspec.json.decode(json.dumps(newer).encode(), type=kind)
        return
    message = msgspec.json.decode(json.dumps(newer).encode(), type=kind)
    assert json.loads(msgspec.json.encode(message)) == document


def test_every_message_has_a_file() -> None:
    covered = {kind_of(path) for path in GOLDEN}
    assert covered == set(KINDS.values())


def test_every_event_of_a_run_is_decoded_through_the_union() -> None:
    union = set(get_args(RunEvent))
    for path in GOLDEN:
        if kind_of(path) in union:
            decoded = msgspec.json.decode(path.read_bytes(), type=RunEvent)
            assert type(decoded) is kind_of(path)
    assert union <= {kind_of(path) for path in GOLDEN}


def test_every_event_of_a_conversation_is_decoded_through_the_union() -> None:
    union = set(get_args(ConversationEvent))
    for path in GOLDEN:
        if kind_of(path) in union:
            decoded = msgspec.json.decode(path.read_bytes(), type=ConversationEvent)
            assert type(decoded) is kind_of(path)
    assert union <= {kind_of(path) for path in GOLDEN}


def test_every_event_of_a_trace_is_decoded_through_the_union() -> None:
    union = set(get_args(TraceEvent))
    for path in GOLDEN:
        if kind_of(path) in union:
            decoded = msgspec.json.decode(path.read_bytes(), type=TraceEvent)
            assert type(decoded) is kind_of(path)
    assert union <= {kind_of(path) for path in GOLDEN}


def test_every_event_of_a_memory_is_decoded_through_the_union() -> None:
    union = set(get_args(MemoryEvent))
    for path in GOLDEN:
        if kind_of(path) in union:
            decoded = msgspec.json.decode(path.read_bytes(), type=MemoryEvent)
            assert type(decoded) is kind_of(path)
    assert union <= {kind_of(path) for path in GOLDEN}


def test_every_event_of_a_sandbox_and_every_action_has_a_file() -> None:
    assert set(get_args(SandboxEvent)) <= {kind_of(path) for path in GOLDEN}
    asked = {
        json.loads(path.read_bytes())["action"]["do"]
        for path in GOLDEN
        if path.stem.startswith("sandbox.request")
    }
    assert asked == {str(kind.__struct_config__.tag) for kind in get_args(SandboxAction)}


@pytest.mark.parametrize("kind", TAGGED.values(), ids=lambda kind: kind.__name__)
def test_tags_are_written_out_and_dotted_lower_case(kind: type[msgspec.Struct]) -> None:
    tag = str(kind.__struct_config__.tag)
    assert tag != kind.__name__
    assert tag == tag.lower()
    assert kind.__struct_config__.tag_field == "type"
    assert kind.__struct_config__.forbid_unknown_fields is False
