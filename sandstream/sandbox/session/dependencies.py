"""Runtime objects for the entries and snapshots of a session, by key.

A client holds a template; each session gets a clone with its own cache, and closes the objects that
it created.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Self, cast

logger = logging.getLogger(__name__)

DependencyKey = str
FactoryFn = Callable[["Dependencies"], object | Awaitable[object]]


class DependenciesError(RuntimeError):
    """Base of dependency errors."""


class DependenciesBindingError(DependenciesError, ValueError):
    """A key is bound twice."""


class DependenciesMissingDependencyError(DependenciesError, LookupError):
    """A required key is not bound."""


@dataclass(frozen=True)
class _Binding:
    """A value, or the factory that creates it."""

    value: object = None
    factory: FactoryFn | None = None
    cache: bool = True
    owns_result: bool = False


class Dependencies:
    """Values and factories by key. A cached factory runs once for all callers."""

    def __init__(self) -> None:
        self._bindings: dict[DependencyKey, _Binding] = {}
        self._made: dict[DependencyKey, asyncio.Task[object]] = {}
        self._running: set[asyncio.Task[object]] = set()
        self._owned: list[object] = []
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    def with_values(cls, values: Mapping[DependencyKey, object]) -> Dependencies:
        """Make dependencies of given values.

        Args:
            values: The values by their keys.

        Returns:
            The dependencies.

        Example:
            client = UnixLocalSandboxClient(dependencies=Dependencies.with_values({"store": store}))
        """
        dependencies = cls()
        for key, value in values.items():
            dependencies.bind_value(key, value)
        return dependencies

    def bind_value(self, key: DependencyKey, value: object, *, overwrite: bool = False) -> Self:
        """Bind a value to a key.

        Args:
            key: The key.
            value: The value.
            overwrite: Replace an earlier binding.

        Returns:
            These dependencies.

        Raises:
            DependenciesBindingError: The key is bound already.
        """
        return self._bind(key, _Binding(value=value), overwrite)

    def bind_factory(
        self,
        key: DependencyKey,
        factory: FactoryFn,
        *,
        cache: bool = True,
        overwrite: bool = False,
        owns_result: bool = False,
    ) -> Self:
        """Bind a factory to a key. It is called on first use.

        Args:
            key: The key.
            factory: Called with these dependencies; returns the value or an awaitable of it.
            cache: Call it once for all uses, instead of for each use.
            overwrite: Replace an earlier binding.
            owns_result: Call the value's ``aclose`` or ``close`` when these dependencies close.

        Returns:
            These dependencies.

        Raises:
            DependenciesBindingError: The key is bound already.
        """
        binding = _Binding(factory=factory, cache=cache, owns_result=owns_result)
        return self._bind(key, binding, overwrite)

    def clone(self) -> Dependencies:
        """The same bindings, with nothing created yet."""
        cloned = Dependencies()
        cloned._bindings.update(self._bindings)
        return cloned

    def _bind(self, key: DependencyKey, binding: _Binding, overwrite: bool) -> Self:
        if not key:
            raise ValueError("key of a dependency must not be empty")
        if key in self._bindings and not overwrite:
            raise DependenciesBindingError(f"dependency `{key}` is bound; pass overwrite=True")
        self._bindings[key] = binding
        stale = self._made.pop(key, None)
        if stale is not None:
            stale.cancel()
        return self

    async def get(self, key: DependencyKey) -> object | None:
        """The value, or None if the key is not bound.

        Args:
            key: The key, as it was bound.
        """
        binding = self._bindings.get(key)
        if binding is None or binding.factory is None:
            return None if binding is None else binding.value
        self._check_usable(key, binding)
        if not binding.cache:
            return await self._outcome(key, binding, self._start(key, binding))
        task = self._made.get(key)
        if task is None:
            task = self._made[key] = self._start(key, binding)
        # If one caller is cancelled, the others still wait for the same value.
        return await self._outcome(key, binding, asyncio.shield(task))

    async def require(self, key: DependencyKey, *, consumer: str | None = None) -> object:
        """The value of a key.

        Args:
            key: The key.
            consumer: The part that needs the value, for the error.

        Returns:
            The value.

        Raises:
            DependenciesMissingDependencyError: The key is not bound.
        """
        value = await self.get(key)
        if value is None:
            needed = f" (needed by {consumer})" if consumer else ""
            raise DependenciesMissingDependencyError(
                f"dependency `{key}`{needed} is not bound; bind it on a Dependencies object "
                f"and give that to the sandbox client as dependencies="
            )
        return value

    def _start(self, key: DependencyKey, binding: _Binding) -> asyncio.Task[object]:
        task = asyncio.create_task(self._make(key, binding))
        self._running.add(task)
        task.add_done_callback(lambda done: self._finished(key, done))
        return task

    async def _make(self, key: DependencyKey, binding: _Binding) -> object:
        assert binding.factory is not None
        value = binding.factory(self)
        if inspect.isawaitable(value):
            value = await cast(Awaitable[object], value)
        if binding.owns_result:
            self._owned.append(value)
        self._check_usable(key, binding)
        return value

    async def _outcome(
        self, key: DependencyKey, binding: _Binding, making: Awaitable[object]
    ) -> object:
        try:
            value = await making
        except asyncio.CancelledError:
            self._check_usable(key, binding)
            raise
        self._check_usable(key, binding)
        return value

    def _check_usable(self, key: DependencyKey, binding: _Binding) -> None:
        if self._closing is not None:
            raise DependenciesError(f"dependencies are closed; `{key}` is no longer available")
        if self._bindings.get(key) is not binding:
            raise DependenciesBindingError(
                f"dependency `{key}` was bound again during its creation"
            )

    def _finished(self, key: DependencyKey, task: asyncio.Task[object]) -> None:
        self._running.discard(task)
        failed = task.cancelled() or task.exception() is not None
        if failed and self._made.get(key) is task:
            del self._made[key]

    async def aclose(self) -> None:
        """Cancel running factories and close owned values, newest first. Safe to call again."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        distinct = {id(value): value for value in reversed(self._owned)}
        self._owned.clear()
        self._made.clear()
        for value in distinct.values():
            await _close_value(value)


async def _close_value(value: object) -> None:
    close = getattr(value, "aclose", None) or getattr(value, "close", None)
    if close is None:
        return
    try:
        result = close()
        if inspect.isawaitable(result):
            await result
    except Exception:
        # A value that fails to close must not keep the others open.
        logger.warning("could not close a sandbox dependency", exc_info=True)
