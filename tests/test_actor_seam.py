"""The actor seam: one base and one registry, no actor knows another, and one module each builds the
subjects and reads the environment.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from sandstream_actors import registry
from sandstream_actors.base import Actor
from sandstream_actors.harness.actor import Harness
from sandstream_actors.memory.actor import MemoryActor
from sandstream_actors.registry import ACTORS, ActorEntry, find_actors
from sandstream_actors.sandbox.actor import SandboxActor
from sandstream_actors.sessions.actor import SessionsActor
from sandstream_actors.tool_host.actor import ToolHost
from sandstream_actors.tracing.actor import TracingActor
from sandstream_bus.setup.roles import ROLES
from support.sources import FOLDERS, ROOT, imports, modules, nodes

import sandstream
from sandstream import actors

ROOMS = ("harness", "sandbox", "memory", "sessions", "tracing", "tool_host")
"""Each is one actor. All other modules of the package are shared."""
SHARED_PARTS = ("memory.scope", "memory.copies")
"""Parts of an actor's room that other actors may read. They do not import the rest of it."""


def _room(module: str) -> str:
    """The actor that a module belongs to; empty: it is shared."""
    rest = module.removeprefix("sandstream_actors.")
    if rest == module or any(f"{rest}.".startswith(f"{it}.") for it in SHARED_PARTS):
        return ""
    first = rest.partition(".")[0]
    return first if first in ROOMS else ""


def test_actors_do_not_know_each_other() -> None:
    wrong = []
    for module, file in modules().items():
        if not module.startswith("sandstream_actors."):
            continue
        for found in imports(file):
            target = _room(f"{found.module}.{found.name}") or _room(found.module)
            if target not in ("", _room(module)):
                where = file.relative_to(ROOT)
                wrong.append(f"{where}:{found.line} imports {found.module} of the {target} actor")
    assert wrong == []


def test_the_rooms_are_there() -> None:
    folder = FOLDERS["sandstream_actors"]
    for name in (*ROOMS, *(it.replace(".", "/") for it in SHARED_PARTS)):
        assert (folder / name).is_dir() or (folder / f"{name}.py").is_file(), name


@pytest.mark.parametrize(
    "kind", [Harness, ToolHost, SandboxActor, MemoryActor, SessionsActor, TracingActor]
)
def test_all_actors_have_one_base(kind: type[Any]) -> None:
    assert issubclass(kind, Actor)
    for inherited in ("start", "run", "reads", "worker_for", "answer", "end_run_of"):
        assert getattr(kind, inherited) is getattr(Actor, inherited), inherited


def test_the_public_actor_is_the_base() -> None:
    assert sandstream.Actor is Actor is actors.Actor
    assert actors.ActorEntry is ActorEntry and actors.Option is registry.Option


# --- the registry ---------------------------------------------------------------------------------


def test_what_an_entry_refers_to_exists() -> None:
    for entry in ACTORS:
        assert entry.serve or entry.make, entry.name
        for reference in (entry.serve, entry.make, entry.doctor, entry.up_check):
            assert not reference or callable(registry.load(reference)), reference


@pytest.mark.parametrize(
    ("name", "in_up", "problem"),
    [
        ("other", "inside", "use in_up='process'"),
        ("harness", "process", "not an ActorEntry with a new name"),
    ],
)
def test_an_entry_of_another_package_that_cannot_work_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, in_up: str, problem: str
) -> None:
    info = tmp_path / "other-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: other\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{name} = other_{name}:ENTRY\n")
    (tmp_path / f"other_{name}.py").write_text(
        "from sandstream.actors import ActorEntry\n"
        f"ENTRY = ActorEntry(name={name!r}, purpose='x', in_up={in_up!r})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TypeError, match=problem):
        find_actors()


def test_an_entry_knows_the_consumers_of_its_actor() -> None:
    owner = {
        name: [it.name for it in ACTORS if it.reads(name)]
        for name in (
            "harness-main",
            "starts-main",
            "sandbox-local-n1",
            "memory",
            "sessions-asks",
            "tracing-main",
        )
    }
    assert list(owner.values()) == [
        ["harness"],
        ["harness"],
        ["sandbox"],
        ["memory"],
        ["sessions"],
        ["tracing"],
    ]
    assert ActorEntry(name="toy", purpose="plays").reads("actor-toy")


def test_each_actor_has_a_role() -> None:
    for entry in ACTORS:
        assert ROLES[entry.role].meaning == f"sandstream actor {entry.name}"


def test_compose_has_the_services_of_the_registry() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    commands = {name: " ".join(it.get("command", ())) for name, it in services.items()}
    found = {name for name, command in commands.items() if "sandstream actor " in command}
    for_providers = {"docker-sandbox"}  # more services of the sandbox actor
    assert found == {it.compose for it in ACTORS if it.compose} | for_providers
    for entry in ACTORS:
        assert f"sandstream actor {entry.name} " in commands[entry.compose]
        [env_file] = services[entry.compose]["env_file"]
        assert env_file["path"] == f"deploy/auth/{entry.role}.env"


@pytest.mark.parametrize("page", ["docs/operations.md", "docs/cli.md"])
def test_the_docs_name_each_actor(page: str) -> None:
    text = (ROOT / page).read_text()
    for entry in ACTORS:
        assert f"sandstream actor {entry.name}" in text, entry.name


def test_no_module_lists_the_actors_by_hand() -> None:
    names = set(find_actors(installed=False))
    lists = []
    for module, file in modules().items():
        if module == "sandstream_actors.registry":
            continue
        for node in nodes(file):
            parts: list[ast.expr | None]
            if isinstance(node, ast.Dict):
                parts = list(node.keys)
            elif isinstance(node, ast.List | ast.Tuple | ast.Set):
                parts = list(node.elts)
            else:
                continue
            if names <= {it.value for it in parts if isinstance(it, ast.Constant)}:
                lists.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert lists == []


# --- subjects -------------------------------------------------------------------------------------

PREFIX_IS_NO_SUBJECT = {
    "sandstream_bus.wire.subjects": "builds all subjects",
    "sandstream_bus.setup.installation": "tells people which installation is not set up",
    "sandstream_actors.sandbox.actor": "names the installation that owns a box",
    "sandstream_actors.tracing.store.path": "names the installation that owns a store",
    "sandstream.cli.services.launch": "prints the prefix",
    "sandstream.cli.commands.setup.auth": "writes the prefix into the users' environments",
}
"""Modules that may read the prefix of an installation, with what they do with it."""
PATTERNS = {
    "sandstream_bus.setup.roles": "the table of permissions",
    "sandstream_bus.nats.topology": "the table of streams",
    "sandstream_bus.logs.agents": "lists the agents",
    "sandstream_bus.setup.lock": "the subject of the lock",
    "sandstream_bus.setup.upgrade": "subjects of an older format",
    "sandstream_bus.setup.upgrade_carry": "subjects of an older format",
    "sandstream_bus.setup.upgrade_state": "subjects of an older format",
    "sandstream_bus.wire.subjects": "builds all subjects",
    "sandstream_actors.tracing.catch_up": "reads the spans of all traces",
    "sandstream._inspect.run_lists": "reads the whole log",
}
"""Modules that may ask for subjects by a pattern (``Subjects.matching``), with the reason."""
WRITES_SUBJECTS = {
    "sandstream_bus.wire.subjects": "builds all subjects",
    "sandstream_bus.setup.roles": "the table of permissions",
    "sandstream_actors.harness.asks": "tells a person where to publish",
    "sandstream_actors.tracing.fold.hops": "the template of a subject, as an attribute of a span",
}
"""Modules whose texts look like parts of subjects, with the reason."""
FAMILIES = ("run", "task", "ask", "sandbox", "session", "memory", "timer", "due", "parked", "alive")


def _nodes() -> Iterator[tuple[str, ast.AST]]:
    for module, file in modules().items():
        for node in nodes(file):
            yield module, node


def _named(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def test_only_one_module_puts_the_prefix_before_something() -> None:
    users = {
        module
        for module, node in _nodes()
        if isinstance(node, ast.Attribute)
        and node.attr == "prefix"
        and _named(node.value).strip("_") == "subjects"
    }
    users.add("sandstream_bus.wire.subjects")
    assert users == PREFIX_IS_NO_SUBJECT.keys()


def test_only_tables_ask_for_subjects_by_a_pattern() -> None:
    users = {
        module
        for module, node in _nodes()
        if isinstance(node, ast.Attribute) and node.attr == "matching"
    }
    assert users == PATTERNS.keys()


def test_no_other_module_writes_a_subject() -> None:
    """Neither puts one together nor takes one apart: any text such as ``.run.`` counts."""
    wrong = [
        f"{module}:{node.lineno} {node.value!r}"
        for module, node in _nodes()
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and _begins_subject(node.value)
    ]
    assert {it.partition(":")[0] for it in wrong} == WRITES_SUBJECTS.keys(), wrong


def _begins_subject(text: str) -> bool:
    return text.startswith(tuple(f".{it}." for it in FAMILIES))


# --- the environment ------------------------------------------------------------------------------

MAY_READ_ENVIRONMENT = {
    "sandstream_bus.environment": "reads it for all of our packages that may import the bus",
    "sandstream_providers.environment": "reads it for the providers, which may not import the bus",
    "sandstream_providers.box.agent.network.transports": "runs alone in a box: the agent's token",
    "sandstream_providers.box.agent.network.background": "runs alone in a box: what commands get",
}


def test_the_environment_is_read_in_one_module() -> None:
    users = {
        module
        for module, node in _nodes()
        if (
            isinstance(node, ast.Attribute)
            and _named(node.value) == "os"
            and node.attr in ("environ", "environb", "getenv", "putenv")
        )
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and {"environ", "getenv"} & {it.name for it in node.names}
        )
    }
    assert users == MAY_READ_ENVIRONMENT.keys()
