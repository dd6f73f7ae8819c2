"""The rooms of the code and the arrows between them: checks them, and shows them on a page.

    python docs/generate_rooms.py          writes the diagram
    python docs/generate_rooms.py --check  fails if an arrow is wrong or the diagram is outdated

``ROOMS`` lists all rooms in layers. A room may import the rooms before it, and no others: so no
cycle of imports spans two rooms. Every import counts, wherever it is written: at the top of a
module, inside a function, or for type checkers only.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
HEAD = '<!-- doctest: skip="a picture of the rooms" -->\n'
"""The line before the diagram on the page. The table after it ends at the next empty line."""
TABLE = "| room | purpose | modules | built on |\n"
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
    Room("sandstream_actors.sessions", "takes the turns of sessions"),
    Room(SURFACE, "the SDK's names: plain descriptions"),
    Room("sandstream._wire", "the user's objects as data, and back"),
    Room("sandstream._inspect", "runs for people, as typed rows"),
    Room("sandstream: people", "questions to people", ("approvals",)),
    Room("sandstream.sessions", "durable sessions as their users hold them"),
    Room("sandstream._hosting", "the user's code for one call"),
    Room("sandstream._run", "one run as its caller drives it"),
    Room(
        "sandstream: entry points",
        "Runner, Client, workers",
        (
            *("runner", "run", "client", "worker", "repl", "verbose"),
            *("actors", "decorators", "events", "providers"),
        ),
    ),
    Room("sandstream._page", "the HTML page of a run"),
    Room("sandstream.testing", "the scripted model"),
    Room("sandstream.tui", "the terminal UI"),
    Room("sandstream.cli", "the command line"),
]
PUBLIC = ("extensions", "handoffs", "mcp", "memory", "models", "sandbox", "tracing")
"""Sub-packages of the surface."""


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
        for line, name in named_by(file):
            target = name if name in known else name.rpartition(".")[0]
            if target in known and target != source:
                yield Import(source, target, line)


@functools.cache
def named_by(file: Path) -> list[tuple[int, str]]:
    """What a file imports, with the lines: modules, and names in modules."""
    return [(getattr(node, "lineno", 0), name) for node in nodes(file) for name in _names(node)]


def nodes(file: Path) -> Iterable[ast.AST]:
    """All nodes of a file. The tests, which have parsed all files already, replace this."""
    return ast.walk(ast.parse(file.read_text()))


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if "import_module" in (called, getattr(node.func, "id", "")):
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
    ]


def knots() -> list[list[str]]:
    """Modules that import each other, directly or by way of others; the largest group first. All
    imports count, except those of a package's own list of names.
    """
    graph: dict[str, set[str]] = {}
    for it in imports(modules()):
        if it.source not in FOLDERS:
            graph.setdefault(it.source, set()).add(it.target)
    found = (group for group in _components(graph) if len(group) > 1)
    return sorted((sorted(it) for it in found), key=len, reverse=True)


def _components(graph: dict[str, set[str]]) -> Iterator[list[str]]:
    """The strongly connected components of a graph (Tarjan's algorithm, without recursion)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    for root in graph:
        todo = [] if root in number else [(root, iter(sorted(graph[root])))]
        while todo:
            node, rest = todo[-1]
            if node not in number:
                number[node] = low[node] = len(number)
                path.append(node)
            for target in rest:
                if target not in number:
                    todo.append((target, iter(sorted(graph.get(target, ())))))
                    break
                if target in path:
                    low[node] = min(low[node], number[target])
            else:
                todo.pop()
                if todo:
                    low[todo[-1][0]] = min(low[todo[-1][0]], low[node])
                if low[node] == number[node]:
                    start = path.index(node)
                    yield path[start:]
                    del path[start:]


def built_on() -> dict[str, list[Room]]:
    """For each room the rooms that it imports, without those that another of them imports too."""
    uses: dict[str, set[str]] = {room.name: set() for room in ROOMS}
    for it in imports(modules()):
        if it.source not in FOLDERS:
            uses[room_of(it.source)].add(room_of(it.target))
    below: dict[str, set[str]] = {}
    found = {}
    for room in ROOMS:  # each one after those that it imports
        others = uses[room.name] - {room.name}
        implied = set().union(*(below[it] for it in others))
        below[room.name] = others | implied
        found[room.name] = [it for it in ROOMS if it.name in others - implied]
    return found


def diagram(below: dict[str, list[Room]]) -> str:
    """The rooms as a picture: an arrow points to what a room is built on."""
    node = {room.name: re.sub(r"\W+", "_", room.name) for room in ROOMS}
    lines = ["```mermaid", "flowchart TB"]
    for package in FOLDERS:
        lines.append(f'  subgraph package_{package}["{package}"]')
        for room in ROOMS:
            inside = room.name.removeprefix(package)
            if inside[:1] in ("", ".", ":"):
                lines.append(f'    {node[room.name]}["{inside.strip(".: ") or package}"]')
        lines.append("  end")
    for room in reversed(ROOMS):
        lines += [f"  {node[room.name]} --> {node[it.name]}" for it in below[room.name]]
    return "\n".join([*lines, "```"]) + "\n"


def table(below: dict[str, list[Room]]) -> str:
    """The rooms as a table, in their order."""
    sizes = Counter(room_of(module) for module in modules())
    lines = [TABLE.rstrip(), "|---|---|---|---|"]
    for room in ROOMS:
        named = ", ".join(map(_shown, below[room.name])) or "nothing"
        lines.append(f"| {_shown(room)} | {room.purpose} | {sizes[room.name]} | {named} |")
    return "\n".join(lines) + "\n"


def _shown(room: Room) -> str:
    """As a path: users import only ``sandstream``."""
    return f"`{room.name.replace('.', '/')}`"


def main() -> int:
    text = PAGE.read_text()
    before, _, rest = text.partition(HEAD)
    _, blank, after = rest.partition(TABLE)[2].partition("\n\n")
    below = built_on()
    made = f"{before}{HEAD}{diagram(below)}\n{table(below)}{blank[1:]}{after}"
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made)
        return 0
    wrong = wrong_arrows()
    if made != text:
        wrong.append(f"the diagram of rooms in {PAGE.name} is outdated: run `make docs`")
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
