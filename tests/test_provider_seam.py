"""Only the registry knows which providers there are; a name is written down nowhere else."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from sandstream_bus.wire.sandbox_specs import DEFAULT_PROVIDER, SandboxSpec
from sandstream_providers import registry
from sandstream_providers.local.host import LocalHost
from support.sources import FOLDERS, ROOT, modules, nodes

OWN_FOLDER = FOLDERS["sandstream_providers"] / "local"
ALLOWED = {
    "DEFAULT_PROVIDER = 'local'": "the default, part of the wire",
    "LOCAL = ProviderEntry(name='local'": "the registry's entry",
    "type: Literal['local'] = 'local'": "a kind of snapshot, as the Agents SDK calls it",
}
"""Statements with the name, each with its reason."""
NAMED = re.compile(r"local|.*-local-.*")


def _names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and text of each statement with the provider's name, or an import of its package."""
    nodes = [*nodes]
    has_name = any(map(_is_name, nodes))
    for node in nodes:
        if isinstance(node, ast.ImportFrom | ast.Import):
            if "sandstream_providers.local" in (text := ast.unparse(node)):
                yield node.lineno, text
            continue
        if not has_name or not isinstance(node, ast.stmt):
            continue
        own = (
            part
            for field in ast.iter_child_nodes(node)
            if not isinstance(field, ast.stmt)
            for part in ast.walk(field)
        )
        if any(map(_is_name, own)):
            yield node.lineno, ast.unparse(node)


def _is_name(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and NAMED.fullmatch(node.value) is not None
    )


@functools.cache
def _found() -> list[tuple[Path, int, str]]:
    """All such statements of the product, with their places."""
    return [(file, *it) for file in modules().values() for it in _names(nodes(file))]


def test_no_module_names_the_local_provider() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for file, line, text in _found()
        if not file.is_relative_to(OWN_FOLDER)
        and not any(text.startswith(allowed) for allowed in ALLOWED)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "source",
    [
        'x = "local"',
        'PROVIDERS = ("local",)',
        'def f(provider: str = "local") -> None: ...',
        'is_served(f"sandbox-local-{node}")',
        'if name == "local":\n    pass',
        "def f():\n    from sandstream_providers.local.provider import LocalProvider",
        "import sandstream_providers.local",
    ],
)
def test_the_check_finds_what_it_is_for(source: str) -> None:
    assert [*_names(ast.walk(ast.parse(source)))]


@pytest.mark.parametrize("source", ['x = ".local"', 'x = "local_dir"', '"""The local one."""'])
def test_the_check_finds_nothing_else(source: str) -> None:
    assert not [*_names(ast.walk(ast.parse(source)))]


def test_every_exception_is_needed() -> None:
    for allowed in ALLOWED:
        assert any(it.startswith(allowed) for _, _, it in _found()), f"not needed: {allowed}"


def test_the_default_is_in_the_registry() -> None:
    assert SandboxSpec().provider == DEFAULT_PROVIDER
    assert registry.find(DEFAULT_PROVIDER) is registry.LOCAL
    assert registry.LOCAL.name == LocalHost.name


def test_every_path_of_the_registry_leads_somewhere() -> None:
    for path in (
        registry.LOCAL.factory,
        registry.LOCAL.client,
        registry.LOCAL.client_options,
        registry.LOCAL.doctor,
    ):
        assert callable(registry.load(path))
