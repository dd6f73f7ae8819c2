"""The description of the wire is what the code says, and messages fit it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from docs.doc_blocks import read_page
from sandstream_bus.wire import conversations as conversation_messages
from sandstream_bus.wire import memories as memory_messages
from sandstream_bus.wire import messages, subjects
from sandstream_bus.wire import open_runs as index_messages
from sandstream_bus.wire import sandboxes as sandbox_messages
from sandstream_bus.wire import sessions as session_messages
from sandstream_bus.wire import traces as trace_messages

ROOT = Path(__file__).parents[2]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C it takes a tenth of the time
DOCUMENT: dict[str, Any] = yaml.load((ROOT / "docs" / "asyncapi.yaml").read_text(), Loader=LOADER)
EXAMPLES = [
    block
    for name in ("wire.md", "architecture.md")
    if (path := ROOT / "docs" / name).exists()
    for block in read_page(path, path.read_text()).blocks
    if block.lang == "json" and "message" in block.marks
]
MODULES = (
    messages,
    sandbox_messages,
    conversation_messages,
    trace_messages,
    memory_messages,
    session_messages,
)
_GOLDEN = ROOT / "tests" / "golden"
GOLDEN = sorted(it for it in _GOLDEN.rglob("*.json") if not it.is_relative_to(_GOLDEN / "vendors"))


def test_the_description_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate_asyncapi.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_check_notices_a_change(tmp_path: Path) -> None:
    for file in [ROOT / "docs" / "generate_asyncapi.py", *(ROOT / "docs").glob("wire_*.py")]:
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "asyncapi.yaml").write_text("asyncapi: 3.0.0\n")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "generate_asyncapi.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "out of date" in done.stderr


def test_every_subject_of_the_grammar_is_a_channel_and_no_other() -> None:
    grammar = {
        re.sub(
            r"<(\w+)>", r"{\1}", found.replace("<p>", "sandstream").replace("<kind>…", "<event>")
        )
        for found in re.findall(r"^    (<p>\.\S+)", subjects.__doc__ or "", re.MULTILINE)
    }
    assert {channel["address"] for channel in DOCUMENT["channels"].values()} == grammar


def test_every_tagged_message_is_described() -> None:
    described = {message["name"] for message in DOCUMENT["components"]["messages"].values()}
    tags = {
        str(kind.__struct_config__.tag)
        for module in MODULES
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        if issubclass(kind, module.Message)
        if kind is not module.Message
    }
    assert tags <= described


def test_all_references_lead_somewhere() -> None:
    references: list[str] = []

    def collect(node: Any) -> None:
        if isinstance(node, dict):
            references.extend(v for k, v in node.items() if k == "$ref")
        for child in node.values() if isinstance(node, dict) else node:
            if isinstance(child, dict | list):
                collect(child)

    collect(DOCUMENT)
    assert len(references) > 50
    for reference in references:
        target: Any = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda block: f"{block.where}")
def test_examples_fit_their_schema_and_their_struct(block: Any) -> None:
    name = block.marks["message"]
    _fits(block.text.encode(), _struct(name))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_messages_fit_their_schema(path: Path) -> None:
    data = path.read_bytes()
    tag = json.loads(data).get("type")
    by_tag = {message["name"]: name for name, message in DOCUMENT["components"]["messages"].items()}
    if tag in by_tag:
        _fits(data, _struct(by_tag[tag]))


def _struct(name: str) -> type[Any]:
    modules = (*MODULES, index_messages)
    (kind,) = {vars(module)[name] for module in modules if name in vars(module)}
    struct: type[Any] = kind
    return struct


def _fits(data: bytes, kind: type[Any]) -> None:
    """msgspec checks the values; the description must know every field that is there."""
    msgspec.json.decode(data, type=kind)
    schema = DOCUMENT["components"]["schemas"][kind.__name__]
    value = json.loads(data)
    assert set(value) <= set(schema["properties"])
    assert set(schema.get("required", [])) <= set(value)
