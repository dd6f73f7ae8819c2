"""The tables of roles in operations.md are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from sandstream_bus.nats.topology import Topology
from sandstream_bus.setup.roles import ROLES, grant_of
from sandstream_bus.wire.subjects import Subjects

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
SECTION = PAGE[PAGE.index("## Who may do what") : PAGE.index("### What is enforced")]
OUTSIDE = re.compile(r"^\| `(\w+)` \| (.*) \| ?(.*) ?\|$", re.MULTILINE)
INSIDE = re.compile(r"^\| `(\w+)`(?:, `(\w+):[A-Z]+`)? \| ([^|]+) \|$", re.MULTILINE)
SPAN = re.compile(r"`([^`]+)`")


def test_every_role_has_a_row() -> None:
    outside = {row[1] for row in OUTSIDE.finditer(SECTION)}
    inside = {row[1]: row[2] for row in INSIDE.finditer(SECTION)}
    assert outside == {name for name, role in ROLES.items() if role.is_outside}
    assert set(inside) == {name for name, role in ROLES.items() if not role.is_outside}
    for name, detailed in inside.items():
        assert bool(detailed) == bool(ROLES[name].detail), name


def test_the_rows_have_the_subjects() -> None:
    topology = Topology(Subjects())
    for name, publish, subscribe in OUTSIDE.findall(SECTION):
        may = grant_of(topology, "alice", [name])
        heard = SPAN.findall(subscribe)
        assert [it for it in may.subscribe if it != "_INBOX.alice.>"] == heard, name
        if name == "console":
            continue  # it is described by the others
        spans = SPAN.findall(publish.split(" (for ")[0])
        streams = [it for it in spans if it.startswith(("SANDSTREAM_", "OBJ_"))]
        said = {
            it.removesuffix("S") + stream
            for it in spans
            if it.startswith("_API.")
            for stream in streams
        }
        said |= {it for it in spans if it.startswith("sandstream.")}
        assert set(may.publish) == said, name
    assert grant_of(topology, "shared", ["submit"]).publish == ["sandstream.task.*"]
