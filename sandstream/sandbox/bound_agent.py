"""A sandbox agent in one run: binds its capabilities to the run's session and assembles its prompt
and tools. Nothing is created or sent here; :meth:`BoundAgent.use` describes what the run needs.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sandstream_actors.run.sandbox_record import SandboxRecord
from sandstream_bus.wire.sandboxes import SandboxUse
from sandstream_bus.wire.subjects import sandbox_of

from sandstream.agent import Agent
from sandstream.exceptions import UserError
from sandstream.models.default_models import get_default_model
from sandstream.run_config import RunConfig
from sandstream.run_context import RunContextWrapper
from sandstream.sandbox.capabilities import Capability, Memory
from sandstream.sandbox.config import SandboxRunConfig
from sandstream.sandbox.entries import Mount
from sandstream.sandbox.instructions import get_default_sandbox_instructions
from sandstream.sandbox.manifest import Manifest
from sandstream.sandbox.plan import custom_entries
from sandstream.sandbox.prompt_assembly import assemble_prompt
from sandstream.sandbox.sandbox_agent import SandboxAgent
from sandstream.sandbox.session.link import SandboxLink
from sandstream.sandbox.session.sandbox_client import BaseSandboxClient
from sandstream.sandbox.session.sandbox_session import SandboxSession
from sandstream.sandbox.session.sandbox_session_state import SandboxSessionState
from sandstream.sandbox.session.workspace import name_of
from sandstream.sandbox.types import User
from sandstream.sandbox.workspace_paths import SandboxWorkspaceScope

if TYPE_CHECKING:
    from sandstream.result import RunResultBase

CLOSE_PATIENCE_S = 10.0
_LOOK_S = 0.05


class BoundAgent:
    """One sandbox agent of one run."""

    def __init__(
        self,
        agent: SandboxAgent[Any],
        config: RunConfig,
        run: str,
        link: SandboxLink | None = None,
    ) -> None:
        """``link``: the location of the sandbox, instead of the client's."""
        self.public = agent
        self._is_deployed = link is not None
        sandbox = _sandbox_config(agent, config)
        self._config = sandbox
        self._capabilities = [capability.clone() for capability in agent.capabilities]
        _check_requirements(self._capabilities)
        self.memory = _memory_of(agent, self._capabilities)
        self.is_owned = sandbox.session is None
        self.memory_use = (
            self.memory.use(owned=self.is_owned, has_provider=config.model_provider is not None)
            if self.memory is not None
            else None
        )
        """How the run is remembered; None: not at all."""
        self.model_provider = config.model_provider
        self.session = self._session(sandbox, run, link)
        self.session.archive_limits = sandbox.archive_limits
        self.session.concurrency_limits = sandbox.concurrency_limits
        self._scope = SandboxWorkspaceScope(cwd=sandbox.cwd)  # type: ignore[arg-type]
        is_new = self.is_owned and sandbox.session_state is None
        self._manifest = self.session.state.manifest if is_new else self._extended()
        for capability in self._capabilities:
            capability.bind(self.session)
            capability.bind_run_as(_user(agent.run_as))
            capability.bind_workspace_scope(self._scope)
        self.working = self._working_agent(config)

    # --- the session ---------------------------------------------------------------------------

    def _session(
        self, sandbox: SandboxRunConfig, run: str, link: SandboxLink | None
    ) -> SandboxSession:
        """The caller's session, one from a saved state, or a new one, in this order."""
        if sandbox.session is not None:
            if not isinstance(sandbox.session, SandboxSession):
                raise UserError(
                    f"sandbox.session must be a SandboxSession, not "
                    f"{type(sandbox.session).__name__}"
                )
            return sandbox.session
        client = sandbox.client
        if not isinstance(client, BaseSandboxClient):
            raise ValueError(
                "RunConfig(sandbox=...) needs a client or a live session: "
                "SandboxRunConfig(client=UnixLocalSandboxClient())"
            )
        if sandbox.options is None and not client.supports_default_options:
            raise UserError(f"{type(client).__name__} needs SandboxRunConfig(options=...)")
        state = self._state(sandbox, client, run)
        session = client.session_of(state, sandbox.options, run=run)
        if link is not None:
            session.remote.link = link
        return session

    def _state(
        self, sandbox: SandboxRunConfig, client: BaseSandboxClient[Any], run: str
    ) -> SandboxSessionState:
        if sandbox.session_state is not None:
            state = SandboxSessionState.parse(sandbox.session_state)
            if not isinstance(state, client.state_class):
                raise TypeError(
                    f"the session state is of the backend {state.type!r}, but the client is of "
                    f"{client.backend_id!r}"
                )
            return state
        given = sandbox.manifest or self.public.default_manifest or client.default_manifest()
        return client.new_state(
            snapshot=sandbox.snapshot,
            manifest=self._processed(given),
            options=sandbox.options,
            sandbox_id=sandbox_of(run, self.public.name),
        )

    def move_to(self, sandbox: str, link: SandboxLink) -> None:
        """Work in another sandbox than the run's own: in that of a durable session."""
        self.session.state.rename(sandbox)
        remote = self.session.remote
        remote.sandbox, remote.link, remote.node = sandbox, link, ""

    async def use(self) -> SandboxUse:
        """The description of the sandbox for the run. Uploads local sources to the object store;
        starts the caller's session if it is not running.
        """
        cwd = str(self._config.cwd or "")
        user = name_of(self.public.run_as)
        session = self.session
        if not self.is_owned:
            if not await session.running():
                await session.start()
            await self._add_entries()
            await self._check_cwd(cwd)
            session.waits_for_memory = session.waits_for_memory or self.waits_for_memory
            return SandboxUse(
                spec=await session.spec(with_plan=False),
                id=session.bus_name,
                owned=False,
                checkpoint=self._config.checkpoint,
                cwd=cwd,
                user=user,
            )
        if self._config.session_state is not None:
            await session.replace_if_deleted()
            if self._new_entries():
                await session.start()
                await self._add_entries()
        if custom_entries(session.state.manifest):
            if self._is_deployed:
                raise UserError(
                    f"agent {self.public.name!r}: entries of your own class cannot be laid out for "
                    "a deployed agent; use File, Dir, LocalDir or GitRepo entries"
                )
            await session.start()  # before the run: only this process can apply them
        if cwd and not self._is_deployed:
            await session.start()
            await self._check_cwd(cwd)
        return SandboxUse(
            spec=await session.spec(),
            id=session.bus_name,
            checkpoint=self._config.checkpoint,
            cwd=cwd,
            user=user,
        )

    async def _check_cwd(self, cwd: str) -> None:
        test = ["test", "-d", cwd, "-a", "-x", cwd]
        user = self.public.run_as
        if not cwd or (await self.session.exec(*test, shell=False, user=user)).ok():
            return
        if self.is_owned:
            is_new = self._config.session_state is None
            await (self.session.delete() if is_new else self.session.shutdown())
        raise UserError(
            f"SandboxRunConfig(cwd={cwd!r}): there is no such directory in the workspace"
        )

    def _extended(self) -> Manifest:
        """The manifest of an existing session, extended by the capabilities. They may add files,
        but change nothing else.
        """
        before = self.session.state.manifest
        after = self._processed(before)
        changed = [
            name
            for name in ("root", "environment", "users", "groups", "extra_path_grants")
            if getattr(before, name) != getattr(after, name)
        ]
        if changed:
            raise ValueError(
                f"run_as or a capability changes {', '.join(changed)} of the manifest, which a "
                "running session cannot take over; give the run a client instead of a session"
            )
        for path, entry in before.entries.items():
            if path not in after.entries:
                raise ValueError(f"a capability removes {path} from a running session's manifest")
            if after.entries[path].type != entry.type:
                raise ValueError(
                    f"a capability makes {path} a {after.entries[path].type} in a running session, "
                    f"where it is a {entry.type}"
                )
        mounts = [path for path, it in after.entries.items() if isinstance(it, Mount)]
        added = [path for path in mounts if after.entries[path] != before.entries.get(path)]
        if added:
            raise ValueError(f"a capability mounts {added[0]}, which a running session cannot do")
        return after

    def _processed(self, given: Manifest) -> Manifest:
        """The manifest after the changes of the capabilities and ``run_as``."""
        manifest = given.model_copy(deep=True)
        for capability in self._capabilities:
            manifest = capability.process_manifest(manifest)
        user = _user(self.public.run_as)
        if user is not None and all(it.name != user.name for it in manifest.users):
            manifest = manifest.model_copy(update={"users": [*manifest.users, user]})
        return manifest

    async def _add_entries(self) -> None:
        """Write the entries that the capabilities added to a session."""
        new = self._new_entries()
        if new:
            await self.session.add_entries(self._manifest, new)

    def _new_entries(self) -> dict[Any, Any]:
        known = self.session.state.manifest.entries
        return {path: it for path, it in self._manifest.entries.items() if it != known.get(path)}

    async def closed(self, *, within_s: float) -> SandboxRecord:
        """Wait until the run has closed the sandbox, and return its record: the sandbox of a
        cancelled run is closed after the run's end. After ``within_s`` it is left to the reaper.
        """
        deadline = time.monotonic() + within_s
        while True:
            record = await self.session.remote.record()
            if record.is_closed or not record.may_have_box or time.monotonic() > deadline:
                return record
            await asyncio.sleep(_LOOK_S)

    @property
    def waits_for_memory(self) -> bool:
        generate = self.memory.generate if self.memory is not None else None
        return generate is not None and generate.wait_for_memory

    async def was_used(self) -> bool:
        """Did the agent have a turn in this run, or did the session exist before?"""
        return (await self.session.remote.record()).state != "unknown"

    async def finish(self) -> None:
        """After the run: write the caller's own snapshot from the last checkpoint."""
        record = await self.closed(within_s=CLOSE_PATIENCE_S)
        self.session.state.note_box(record.box_id)
        if record.tree:
            self.session.state.snapshot_fingerprint = record.tree
            self.session.state.workspace_root_ready = True
            await self.session.export_snapshot()

    async def remembered(self, result: RunResultBase) -> None:
        """Wait for the memory of the run that just ended."""
        from sandstream.sandbox.session.session_close import wait_quietly

        await wait_quietly(result)

    # --- the agent -----------------------------------------------------------------------------

    def _working_agent(self, config: RunConfig) -> SandboxAgent[Any]:
        """The agent for the model: with the tools and the prompt of its sandbox."""
        agent = self.public
        working = copy.copy(agent)
        tools = [tool for it in self._capabilities for tool in it.tools()]
        working.tools = [*agent.tools, *tools]
        working.instructions = self._instructions()
        settings = agent.model_settings
        extra = dict(settings.extra_args or {})
        model = _model_name(agent, config)
        for capability in self._capabilities:
            known = {**extra, "model": model} if model else dict(extra)
            extra = _merged(extra, capability.sampling_params(known))
        working.model_settings = replace(settings, extra_args=extra or None)
        return working

    def _instructions(self) -> Any:
        """A text if all parts are known now, else a function that is called before each turn."""
        agent = self.public
        known = (
            (agent.instructions is None or isinstance(agent.instructions, str))
            and (agent.base_instructions is None or isinstance(agent.base_instructions, str))
            and all(it.has_static_instructions() for it in self._capabilities)
            and self.session.root_is_known
        )
        if known:
            texts = [it.static_instructions(self._manifest) for it in self._capabilities]
            return self._assembled(
                agent.base_instructions, agent.instructions, texts, self._manifest
            )

        async def compute(context: RunContextWrapper[Any], _: Agent[Any]) -> str:
            where = await self.session.located_manifest()
            base = await _resolved(agent.base_instructions, context, agent)
            own = await _resolved(agent.instructions, context, agent)
            texts = [await it.instructions(where) for it in self._capabilities]
            return self._assembled(base, own, texts, where)

        return compute

    def _assembled(
        self, base: Any, own: Any, texts: Sequence[str | None], manifest: Manifest
    ) -> str:
        return assemble_prompt(
            base=get_default_sandbox_instructions() if base is None else base,
            agent_instructions=own,
            capability_texts=[text for text in texts if text],
            manifest=manifest,
            cwd=str(self._config.cwd) if self._config.cwd else None,
        )

    def process_input(self, items: list[Any]) -> list[Any]:
        """The run's input after the changes of the capabilities."""
        for capability in self._capabilities:
            items = capability.process_context(items)
        return items


def _sandbox_config(agent: SandboxAgent[Any], config: RunConfig) -> SandboxRunConfig:
    if config.sandbox is None:
        raise UserError(
            f"agent {agent.name!r} works in a sandbox: say which with "
            "RunConfig(sandbox=SandboxRunConfig(client=UnixLocalSandboxClient()))"
        )
    return config.sandbox


def _check_requirements(capabilities: Sequence[Capability]) -> None:
    known = {capability.type for capability in capabilities}
    for capability in capabilities:
        missing = sorted(capability.required_capability_types() - known)
        if missing:
            raise UserError(
                f"{type(capability).__name__} requires missing capabilities: {', '.join(missing)}"
            )


def _memory_of(agent: SandboxAgent[Any], capabilities: Sequence[Capability]) -> Memory | None:
    found = [it for it in capabilities if isinstance(it, Memory)]
    if len(found) > 1:
        raise UserError(f"agent {agent.name!r} has {len(found)} Memory capabilities: give it one")
    return found[0] if found else None


def _user(value: User | str | None) -> User | None:
    return User(name=value) if isinstance(value, str) else value


def _model_name(agent: Agent[Any], config: RunConfig) -> str | None:
    model = config.model if config.model is not None else agent.model
    if model is None:
        return get_default_model()
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return name if isinstance(name, str) else None


def _merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in more.items():
        known = merged.get(key)
        both = isinstance(known, dict) and isinstance(value, dict)
        merged[key] = _merged(known, value) if both else value  # type: ignore[arg-type]
    return merged


async def _resolved(value: Any, context: RunContextWrapper[Any], agent: Agent[Any]) -> Any:
    if not callable(value):
        return value
    text = value(context, agent)
    return await text if inspect.isawaitable(text) else text
