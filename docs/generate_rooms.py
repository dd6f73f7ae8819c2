"""The rooms of the code and the arrows between them: checks them, and lists them on a page.

    python docs/generate_rooms.py          writes the diagram
    python docs/generate_rooms.py --check  fails if an arrow is wrong or the diagram is outdated

``ROOMS`` lists all rooms in layers. A room may import the rooms before it, and no others: so no
cycle of imports spans two rooms. Every import counts, wherever it is written: at the top of a
module, inside a function, or for type checkers only.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
HEAD = "| room | purpose | modules | built on |\n"
"""The first line of the table on the page. The table ends at the next empty line."""
FOLDERS = {
    "sandstream_bus": "bus",
    "sandstream_providers": "providers",
    "sandstream_workspaces": "workspaces",
    "sandstream_memory": "memory_pipeline",
    "sandstream_actors": "actors",
    "sandstream": "",
}
SURFACE = "sandstream"
"""The room of the SDK's names. Their import paths decide where they lie."""


class Room(NamedTuple):
    name: str
    """The package that the room is, or a name for modules at the root of a package."""
    purpose: str
    modules: tuple[str, ...] = ()
    """The modules at the root of a package that are in this room."""


ROOMS = [
    Room(
        "sandstream_bus: base",
        "errors, crash points, environment",
        ("errors", "crashpoints", "counts", "environment"),
    ),
    Room("sandstream_bus.wire", "messages, subjects, headers"),
    Room("sandstream_bus.nats", "the NATS client layer"),
    Room("sandstream_bus.logs", "logs as readers and writers see them"),
    Room("sandstream_bus.setup", "streams, roles, upgrades"),
    Room("sandstream_bus", "one installation, and the worker loop"),
    Room("sandstream_bus.embedded", "the private server"),
    Room("sandstream_providers", "boxes: interface, registry, agent, local, git"),
    Room("sandstream_workspaces", "content-addressed checkpoints"),
    Room("sandstream_memory", "what runs teach, as pure steps"),
    Room("sandstream_actors.model", "the model interface"),
    Room("sandstream_actors.secrets", "patterns of secrets"),
    Room("sandstream_actors.run", "a run as every actor sees it"),
    Room("sandstream_actors: base", "the base and the registry of actors", ("base", "registry")),
    Room("sandstream_actors.harness", "the agent loop"),
    Room("sandstream_actors.tool_host", "runs the user's code"),
    Room("sandstream_actors.tracing", "traces and metrics of all runs"),
    Room("sandstream_actors.memory", "turns runs into memories"),
    Room("sandstream_actors.sandbox", "works in sandboxes"),
    Room(SURFACE, "the SDK's names: plain descriptions"),
    Room("sandstream._wire", "the user's objects as data, and back"),
    Room("sandstream._inspect", "runs for people, as typed rows"),
    Room("sandstream: people", "questions to people", ("approvals",)),
    Room("sandstream._hosting", "the user's code for one call"),
    Room("sandstream._run", "one run as its caller drives it"),
    Room(
        "sandstream: entry points",
        "Runner, Client, workers",
        (
            *("runner", "run", "client", "worker", "repl", "verbose"),
            *("decorators", "events", "providers"),
        ),
    ),
    Room("sandstream._page", "the HTML page of a run"),
    Room("sandstream.testing", "the scripted model"),
    Room("sandstream.cli", "the command line"),
]
PUBLIC = ("extensions", "handoffs", "mcp", "memory", "models", "sandbox", "tracing")
"""Sub-packages of the surface."""
UPWARD = {
    ("sandstream.agent_tool", "sandstream.runner"): "an agent tool called by hand runs its agent",
    ("sandstream.run_state", "sandstream._hosting.hosted_run"): "a loaded state shows its items",
    ("sandstream.run_state", "sandstream._hosting.run_view"): "a loaded state shows its items",
    ("sandstream.memory.bus_session", "sandstream._run.process"): "a session outside of a run",
    ("sandstream.sandbox._memory.freshness", "sandstream._run.process"): "waits outside of a run",
    (
        "sandstream.sandbox.sandboxes._process_link",
        "sandstream._run.process",
    ): "works outside of a run",
    ("sandstream.models.openai_provider", "sandstream._wire.compile"): "a model called by hand",
    ("sandstream.models.openai_provider", "sandstream._wire.outcomes"): "a model called by hand",
}
"""The only imports against the arrows: conveniences of the surface that need what is built on it.
All of them are inside functions or for type checkers.
"""


class Import(NamedTuple):
    source: str
    target: str
    line: int


def modules() -> dict[str, Path]:
    """All modules of the project, by their full names."""
    found = {}
    for package, folder in FOLDERS.items():
        top = ROOT / folder / package
        for file in top.rglob("*.py"):
            parts = file.relative_to(top.parent).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = file
    return found


def imports(known: dict[str, Path]) -> Iterator[Import]:
    """Every import of one of our modules by another one."""
    for source, file in known.items():
        for node in ast.walk(ast.parse(file.read_text())):
            for target in _targets(node, known):
                if target in known and target != source:
                    yield Import(source, target, getattr(node, "lineno", 0))


def _targets(node: ast.AST, known: dict[str, Path]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{alias.name}" for alias in node.names]
        return [name if name in known else node.module or "" for name in names]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        return [str(it.value) for it in node.args[:1] if isinstance(it, ast.Constant)]
    return []


def room_of(module: str) -> str:
    """The name of the room that a module is in."""
    package, _, rest = module.partition(".")
    first, _, inner = rest.partition(".")
    for room in ROOMS:
        if first in room.modules and not inner and room.name.startswith(f"{package}:"):
            return room.name
        if first and room.name == f"{package}.{first}":
            return room.name
    return package


def wrong_arrows() -> list[str]:
    """Imports of a room that does not come before, each with its place."""
    known = modules()
    place = {room.name: number for number, room in enumerate(ROOMS)}
    return [
        f"{it.source}:{it.line} imports {it.target}: {room_of(it.target)} comes later"
        for it in imports(known)
        if it.source not in FOLDERS  # a package's own list of names
        and place[room_of(it.source)] < place[room_of(it.target)]
        and (it.source, it.target) not in UPWARD
    ]


def unused_exceptions() -> list[tuple[str, str]]:
    """Entries of ``UPWARD`` that nothing needs any more."""
    needed = {(it.source, it.target) for it in imports(modules())}
    return [pair for pair in UPWARD if pair not in needed]


def diagram() -> str:
    """The rooms as a table. Of the rooms that one imports, only those that no other of them
    imports are named: the rest follows.
    """
    known = modules()
    sizes = Counter(room_of(module) for module in known)
    uses: dict[str, set[str]] = {room.name: set() for room in ROOMS}
    for it in imports(known):
        if it.source not in FOLDERS and (it.source, it.target) not in UPWARD:
            uses[room_of(it.source)].add(room_of(it.target))
    below: dict[str, set[str]] = {}
    lines = [HEAD.rstrip(), "|---|---|---|---|"]
    for room in ROOMS:  # each one after those that it imports
        others = uses[room.name] - {room.name}
        implied = set().union(*(below[it] for it in others))
        below[room.name] = others | implied
        named = ", ".join(_shown(it) for it in ROOMS if it.name in others - implied)
        lines.append(
            f"| {_shown(room)} | {room.purpose} | {sizes[room.name]} | {named or 'nothing'} |"
        )
    return "\n".join(lines) + "\n"


def _shown(room: Room) -> str:
    """As a path: users import only ``sandstream``."""
    return f"`{room.name.replace('.', '/')}`"


def main() -> int:
    text = PAGE.read_text()
    before, _, rest = text.partition(HEAD)
    _, blank, after = rest.partition("\n\n")
    made = f"{before}{diagram()}{blank[1:]}{after}"
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made)
        return 0
    wrong = wrong_arrows()
    if made != text:
        wrong.append(f"the table of rooms in {PAGE.name} is outdated: run `make docs`")
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
