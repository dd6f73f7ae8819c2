"""Sandbox clients: they create sessions of one provider, and resume saved ones."""

from __future__ import annotations

import abc
import uuid
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, model_serializer

from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.session.dependencies import Dependencies
from sandstream.sandbox.session.link import SandboxLink
from sandstream.sandbox.session.manager import Instrumentation
from sandstream.sandbox.session.sandbox_session import SandboxSession
from sandstream.sandbox.session.sandbox_session_state import SandboxSessionState
from sandstream.sandbox.session.settings import SandboxSettings
from sandstream.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot

ClientOptionsT = TypeVar("ClientOptionsT")
OptionsClass = type["BaseSandboxClientOptions"]


class BaseSandboxClientOptions(BaseModel):
    """The base of all providers' options; subclasses register by the default of ``type``."""

    model_config = ConfigDict(arbitrary_types_allowed=True, frozen=True)

    type: str
    """A text; each subclass narrows it to its own literal."""
    _subclass_registry: ClassVar[dict[str, OptionsClass]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names = [name for name in type(self).model_fields if name != "type"]
        if len(args) > len(names):
            raise TypeError(
                f"{type(self).__name__}() takes at most {len(names)} positional arguments, "
                f"but {len(args)} were given"
            )
        for name, value in zip(names, args, strict=False):
            if name in kwargs:
                raise TypeError(f"{type(self).__name__}() got {name!r} twice")
            kwargs[name] = value
        super().__init__(**kwargs)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        kind = cls.model_fields["type"].default
        if not isinstance(kind, str) or not kind:
            raise TypeError(f"{cls.__name__} needs a text as the default of `type`")
        known = BaseSandboxClientOptions._subclass_registry.setdefault(kind, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"the options type {kind!r} belongs to {known.__name__} already")

    @classmethod
    def parse(cls, payload: object) -> BaseSandboxClientOptions:
        """Options of the right class, from an options object or a dict.

        Args:
            payload: Options, which are returned unchanged, or a dict with their ``type``.
        """
        if isinstance(payload, BaseSandboxClientOptions):
            return payload
        if not isinstance(payload, dict):
            raise TypeError(
                f"client options must be options or a dict, not {type(payload).__name__}"
            )
        kind = payload.get("type")
        found = BaseSandboxClientOptions._subclass_registry.get(str(kind))
        if found is None:
            raise ValueError(f"unknown client options type {kind!r}")
        return found.model_validate(payload)

    @model_serializer(mode="wrap")
    def _with_type(self, handler: Any) -> dict[str, Any]:
        return {**handler(self), "type": self.type}


class BaseSandboxClient(abc.ABC, Generic[ClientOptionsT]):
    """Creates sessions. A provider adds its link, its settings and its state class.

    Args:
        instrumentation: Receives events about the operations of sessions.
        dependencies: Objects for snapshots and other parts of sessions; each session gets a copy.
    """

    backend_id: str
    supports_default_options: bool = False

    def __init__(
        self,
        *,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        self._instrumentation = instrumentation
        self._dependencies = dependencies

    @property
    @abc.abstractmethod
    def link(self) -> SandboxLink:
        """The link to its sandboxes."""

    @property
    @abc.abstractmethod
    def state_class(self) -> type[SandboxSessionState]: ...

    @property
    def session_class(self) -> type[SandboxSession]:
        """The class of its sessions."""
        return SandboxSession

    @abc.abstractmethod
    def settings(self, options: ClientOptionsT | None) -> SandboxSettings:
        """The settings of new sandboxes.

        Args:
            options: The options of the client; ``None`` is the defaults.

        Returns:
            The settings.
        """

    def settings_of(
        self, state: SandboxSessionState, options: ClientOptionsT | None
    ) -> SandboxSettings:
        """The settings for a sandbox with a state, which has them if no options are given.

        Args:
            state: The state of the sandbox.
            options: The options of the client; ``None`` takes them from the state, or the defaults.
        """
        return self.settings(options)

    def state_fields(self, options: ClientOptionsT | None) -> dict[str, Any]:
        """The provider's own fields of a new state.

        Args:
            options: The options of the client; ``None`` is the defaults.
        """
        return {}

    def default_manifest(self) -> Manifest:
        """The manifest of a session that is created without one."""
        return Manifest()

    def check_manifest(self, manifest: Manifest) -> None:
        """Raise if the provider cannot support the manifest, before anything is created.

        Args:
            manifest: The manifest of a new or resumed session.
        """

    def new_state(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: ClientOptionsT | None = None,
        sandbox_id: str = "",
    ) -> SandboxSessionState:
        """The state of a sandbox that is not created yet. Has no effect.

        Args:
            snapshot: Where to save the workspace, or a saved workspace to start from; ``None``
                saves it in the object store.
            manifest: The contents of the workspace; ``None`` is the provider's default.
            options: Options of the provider.
            sandbox_id: The sandbox's name on the bus; empty makes one.
        """
        manifest = manifest if manifest is not None else self.default_manifest()
        self.check_manifest(manifest)
        session_id = uuid.uuid4()
        fields = {
            "exposed_ports": tuple(self.settings(options).ports),
            **self.state_fields(options),
        }
        state = self.state_class(
            type=self.backend_id,
            session_id=session_id,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            manifest=manifest,
            provider=self.link.provider,
            **fields,
        )
        if sandbox_id:
            state.rename(sandbox_id)
        return state

    def session_of(
        self, state: SandboxSessionState, options: ClientOptionsT | None = None, *, run: str = ""
    ) -> SandboxSession:
        """A session object for a state. Starts nothing.

        Args:
            state: The state of a new or existing sandbox.
            options: Options of the provider; ``None`` takes them from the state, or the defaults.
            run: The run that the session belongs to; empty if it belongs to none.
        """
        return self.session_class(
            state,
            self.link,
            self.settings_of(state, options),
            instrumentation=self._instrumentation,
            dependencies=self._dependencies.clone() if self._dependencies else None,
            run=run,
        )

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: ClientOptionsT | None = None,
    ) -> SandboxSession:
        """Create a session. The sandbox is created by ``start()``, or with ``async with``.

        Args:
            snapshot: Where to save the workspace, or a saved workspace to start from; ``None``
                saves it in the object store.
            manifest: The contents of the workspace; ``None`` is an empty one.
            options: Options of the provider.

        Returns:
            The session. The caller closes it.

        Raises:
            ValueError: The provider needs options, or cannot support the manifest.

        Example:
            session = await client.create(manifest=Manifest(entries={"a.txt": File(content=b"a")}))
            async with session:
                result = await session.exec("cat a.txt")
        """
        if options is None and not self.supports_default_options:
            raise ValueError(f"{type(self).__name__}.create() needs options")
        state = self.new_state(snapshot=snapshot, manifest=manifest, options=options)
        return self.session_of(state, options)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Continue a session: in the live sandbox if it still exists, else from its last checkpoint
        or snapshot.

        Args:
            state: The saved state, ``session.state``.

        Returns:
            The session. The caller starts and closes it.

        Raises:
            TypeError: The state belongs to another provider.
        """
        if not isinstance(state, self.state_class):
            raise TypeError(
                f"{type(self).__name__}.resume() needs a {self.state_class.__name__}, "
                f"not {type(state).__name__}"
            )
        self.check_manifest(state.manifest)
        return self.session_of(state)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Remove the sandbox permanently: its box, its files, its record. Snapshots stay.

        Args:
            session: The session of the sandbox.

        Returns:
            The same session.
        """
        await session.delete()
        return session

    async def close(self) -> None:
        """Close the client. It owns no resources: sandboxes belong to their actor."""

    def serialize_session_state(self, state: SandboxSessionState) -> dict[str, object]:
        """The state as JSON values.

        Args:
            state: The state of a session.

        Returns:
            The values. Path grants with a host path are left out and must be granted again.
        """
        grants = tuple(it for it in state.manifest.extra_path_grants if it.host_path is None)
        manifest = state.manifest.model_copy(update={"extra_path_grants": grants})
        return state.model_copy(update={"manifest": manifest}).model_dump(mode="json")

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Read the result of :meth:`serialize_session_state`.

        Args:
            payload: The values.

        Returns:
            The state, for :meth:`resume`.
        """
        return self.state_class.model_validate(payload)
