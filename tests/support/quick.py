"""Finds the quick tests, and checks that they are: they start no process and reach no server.

A test is quick unless its code, or the code of its fixtures, leads to something that starts a
process. The code is followed through the functions and classes of the tests, not through the
product. Where only the product starts a process, the test says so: ``@pytest.mark.needs_process``.

The guard checks both statements while the tests run. A quick test that starts a process or connects
to another machine or to a NATS server fails, and so does a test with the mark that does neither.
"""

from __future__ import annotations

import functools
import inspect
import ipaddress
import platform
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent.parent
STARTERS = frozenset(
    {
        *("subprocess", "multiprocessing", "pty"),
        *("create_subprocess_exec", "create_subprocess_shell", "fork", "posix_spawn"),
        *("ensure_server", "LocalProvider", "MCPServerStdio", "ToyHost"),
    }
)
"""Names that start a process, wherever they are used."""
EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})
"""Audit events of a process that starts."""
NATS_PORT = 4222
CONTAINERS = (list, tuple, dict, set, frozenset, functools.partial)


def is_quick(item: pytest.Item) -> bool:
    """Whether nothing that the test, its parameters or its fixtures use starts a process."""
    if not isinstance(item, pytest.Function) or item.get_closest_marker("needs_process"):
        return False
    fixtures = item._fixtureinfo.name2fixturedefs.values()
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    used = [item.function, *(it[-1].func for it in fixtures), *parameters]
    return not any(_starts(it, {}) for it in used)


_KNOWN: dict[int, tuple[Any, bool]] = {}
"""The answers by the identity of a thing; the thing is kept so that the identity stays."""


def _starts(thing: Any, seen: dict[int, Any]) -> bool:
    """Whether a starter can be reached from a function, a class, an object or a container."""
    if id(thing) in _KNOWN:
        return _KNOWN[id(thing)][1]
    if id(thing) in seen:
        return False
    is_first = not seen
    seen[id(thing)] = thing
    found = any(_starts(it, seen) for it in _parts(thing)) or not STARTERS.isdisjoint(_used(thing))
    if found:
        _KNOWN[id(thing)] = thing, True
    elif is_first:  # then nothing on the way leads to a starter either
        _KNOWN.update((key, (it, False)) for key, it in seen.items())
    return found


def _parts(thing: Any) -> Iterator[Any]:
    """What a thing leads to, within the tests."""
    if isinstance(thing, FunctionType | functools._lru_cache_wrapper):
        yield getattr(thing, "__wrapped__", None)
    if isinstance(thing, dict):
        yield from thing.values()
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from thing
    elif isinstance(thing, functools.partial):
        yield from (thing.func, thing.args, thing.keywords)
    elif isinstance(thing, property):
        yield thing.fget
    elif isinstance(thing, staticmethod | classmethod) or inspect.ismethod(thing):
        yield thing.__func__
    elif inspect.isfunction(thing):
        yield from _names_of(thing)
    elif inspect.isclass(thing):
        yield from (value for base in thing.__mro__ if _is_ours(base) for value in _values(base))
    elif _is_ours(type(thing)):
        yield type(thing)
        yield from _values(thing)


def _values(thing: Any) -> list[Any]:
    return [it for name, it in getattr(thing, "__dict__", {}).items() if name != "__dict__"]


def _names_of(function: FunctionType) -> Iterator[Any]:
    """The objects of the tests that a function's code names."""
    yield from (cell.cell_contents for cell in function.__closure__ or () if _is_full(cell))
    used = _used(function)
    for value in map(function.__globals__.get, used):
        if inspect.ismodule(value) and _is_test_file(value):
            yield from (vars(value).get(name) for name in used)
        elif isinstance(value, CONTAINERS) or _is_ours(value) or _is_ours(type(value)):
            yield value


def _is_full(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _used(thing: Any) -> set[str]:
    """The names in a function's code, or none."""
    return {*_names(thing.__code__)} if inspect.isfunction(thing) else set()


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_ours(thing: Any) -> bool:
    """Whether the tests define this function or class."""
    if not isinstance(thing, type | FunctionType | functools._lru_cache_wrapper):
        return False
    return _is_test_file(sys.modules.get(thing.__module__))


@functools.cache
def _is_test_file(module: ModuleType | None) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).is_relative_to(TESTS)


class QuickTests:
    """The plugin: marks the quick tests, and watches what each test does."""

    def __init__(self) -> None:
        self._seen: list[str] | None = None
        platform.processor()  # starts `uname` once; the openai package asks for it
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._seen is None:
            return
        if event in EVENTS:
            self._seen.append(f"starts a process: {arguments[:2]}")
        elif event == "socket.connect" and _is_far(arguments[1]):
            self._seen.append(f"connects to {arguments[1]}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark them before ``-m quick`` chooses."""
        for item in items:
            if is_quick(item):
                item.add_marker("quick")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self._seen = []
        try:
            return (yield)
        finally:
            self._seen = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when != "call" or not report.passed or self._seen is None:
            return report
        if item.get_closest_marker("quick") and self._seen:
            report.outcome, report.longrepr = (
                "failed",
                (
                    f"{item.nodeid} counts as quick, but it {'; it '.join(self._seen)}. "
                    "Mark it with @pytest.mark.needs_process."
                ),
            )
        elif item.get_closest_marker("needs_process") and not self._seen:
            report.outcome, report.longrepr = (
                "failed",
                (f"{item.nodeid} is marked with needs_process, but starts none. Remove the mark."),
            )
        return report


def _is_far(address: Any) -> bool:
    """Whether this is an address of another machine, or of a NATS server."""
    if not isinstance(address, tuple):
        return False  # a unix socket
    host, port = address[:2]
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    return not is_loopback or port == NATS_PORT
