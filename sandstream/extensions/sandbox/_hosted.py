"""Sandboxes at a vendor: what the clients, sessions and states of all hosted providers share.

``create`` and ``resume`` open the box at once, so that ``state.sandbox_id`` is the vendor's own id
from then on: a program that saves the state at once never loses a box that costs money.
"""

from __future__ import annotations

from typing import Any, Self, cast

import msgspec
from pydantic import Field
from sandstream_bus.wire.sandboxes import ApplyPlan
from sandstream_providers.registry import ProviderEntry

from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.plan import check_manifest
from sandstream.sandbox.sandboxes._process_link import ProcessLink
from sandstream.sandbox.session.dependencies import Dependencies
from sandstream.sandbox.session.link import SandboxLink
from sandstream.sandbox.session.manager import Instrumentation
from sandstream.sandbox.session.sandbox_client import BaseSandboxClient, ClientOptionsT
from sandstream.sandbox.session.sandbox_session import SandboxSession
from sandstream.sandbox.session.sandbox_session_state import SandboxSessionState
from sandstream.sandbox.snapshot import SnapshotBase, SnapshotSpec

IDLE_S = 120.0
"""Boxes without an operation for so long are saved and paused: the vendor counts each second."""


class HostedSandboxSessionState(SandboxSessionState):
    """The base of states of sandboxes at a vendor. ``sandbox_id`` is the vendor's own id."""

    sandbox_name: str = ""
    """The sandbox's name on the bus."""
    pause_on_exit: bool = False
    """When the session closes, pause the sandbox and keep it for ``resume``."""
    idle_s: float | None = Field(default=IDLE_S, ge=0)
    """Seconds without an operation after which the sandbox is saved and paused."""

    @property
    def bus_name(self) -> str:
        return self.sandbox_name

    def rename(self, name: str) -> None:
        self.sandbox_name, self.sandbox_id = name, ""

    def note_box(self, box_id: str) -> None:
        self.sandbox_id = box_id or self.sandbox_id

    def model_post_init(self, _context: Any) -> None:
        if not self.sandbox_name:
            self.sandbox_name = f"s-{self.session_id.hex}"


class HostedSandboxSession(SandboxSession):
    """A session whose sandbox is a box at a vendor."""

    _was_opened = False
    """The client has opened the box, and the session was not started since."""

    async def open_box(self) -> None:
        """Make the box of a new session. The client calls it."""
        await self._started()
        self._was_opened = True

    async def reopen_box(self) -> None:
        """Find the box of a resumed session, or restore it. If there is nothing to restore it from,
        make it again. The client calls it.
        """
        is_new = await self._started(anew=True)
        if not is_new:
            await self._reapply_ephemeral()
        self._was_opened = True

    async def _reapply_ephemeral(self) -> None:
        """No checkpoint has the ephemeral entries of the manifest, so no checkpoint restores them.
        A repository stays as it is.
        """
        plan = (await self.remote.record()).spec.plan
        if any(it.ephemeral for it in plan.files) or any(it.ephemeral for it in plan.trees):
            without_repos = msgspec.structs.replace(plan, repos=[])
            await self.remote.ask(ApplyPlan(plan=without_repos, only_ephemeral=True))
        await self._apply_custom_entries(only_ephemeral=True)

    async def _start(self, *, anew: bool = False) -> bool:
        if self._was_opened:
            self._was_opened = False
            return False
        return await super()._start(anew=anew)

    async def stop(self) -> None:
        if not (await self.remote.record()).is_closed:  # else there is nothing to save
            await super().stop()

    async def shutdown(self) -> None:
        self._was_opened = False
        await super().shutdown()

    async def delete(self) -> None:
        self._was_opened = False
        await super().delete()


class HostedSandboxClient(BaseSandboxClient[ClientOptionsT]):
    """The base of clients for boxes at a vendor, served by this process."""

    entry: ProviderEntry
    label: str
    """How people call the vendor."""

    def __init__(
        self,
        *,
        endpoint: str = "",
        api_key: str = "",
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        super().__init__(instrumentation=instrumentation, dependencies=dependencies)
        self._link = ProcessLink(self.entry.name, endpoint=endpoint, api_key=api_key)

    @property
    def link(self) -> SandboxLink:
        return self._link

    def check_manifest(self, manifest: Manifest) -> None:
        check_manifest(manifest, supports_users=True, provider=self.entry.name)
        for grant in manifest.extra_path_grants:
            if grant.host_path is not None:
                raise ValueError(
                    f"the path grant {grant.path} shows {grant.host_path} of this machine, which a "
                    f"sandbox at {self.label} cannot see: copy the files with a LocalDir entry"
                )

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: ClientOptionsT | None = None,
    ) -> SandboxSession:
        """Create a session and its box. ``start()`` is still needed, and costs nothing.

        Args:
            snapshot: Where to save the workspace, or a saved workspace to start from; ``None``
                saves it in the object store.
            manifest: The contents of the workspace; ``None`` is an empty one.
            options: Options of the provider.

        Returns:
            The session. The caller closes it.

        Raises:
            ValueError: The provider needs options, or cannot support the manifest.
            ProviderUnavailableError: There is no key for the vendor, or its package is missing.
        """
        session = await super().create(snapshot=snapshot, manifest=manifest, options=options)
        await cast(HostedSandboxSession, session).open_box()
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Continue a session. If its box still exists, ``state.sandbox_id`` stays the same.
        Otherwise the box is restored from the last checkpoint, or made again from the
        manifest, and ``state.sandbox_id`` changes.

        Args:
            state: The saved state, ``session.state``.

        Returns:
            The session. The caller starts and closes it.

        Raises:
            TypeError: The state belongs to another provider.
        """
        session = await super().resume(state)
        await cast(HostedSandboxSession, session).reopen_box()
        return session

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def given(**options: Any) -> dict[str, Any]:
    """The options that are not None: only these are sent to the provider."""
    return {name: value for name, value in options.items() if value is not None}
