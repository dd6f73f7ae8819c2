"""Making the container of a box. What the engine turns out not to have is left out."""

from __future__ import annotations

from typing import Any

import msgspec

from sandstream_providers.docker import container, egress, preparation
from sandstream_providers.docker.container import Plan
from sandstream_providers.docker.end import remove
from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.errors import EngineConflict, EngineRefused, ForeignContainer
from sandstream_providers.docker.facts import EngineFacts
from sandstream_providers.docker.folders import BoxRecord, Folders
from sandstream_providers.docker.images import Images
from sandstream_providers.docker.labels import container_name, is_box_of
from sandstream_providers.docker.options import DockerOptions
from sandstream_providers.docker.seen import Seen, find
from sandstream_providers.interface import BoxGone, BoxSpec
from sandstream_providers.leases import Patience


class Maker:
    """Makes containers on one engine."""

    def __init__(
        self, engine: Engine, folders: Folders, images: Images, patience: Patience
    ) -> None:
        self._engine = engine
        self._patience = patience
        self._folders = folders
        self._images = images
        self.shared = True
        """The engine can mount files of this machine."""
        self._quota = True
        """It can limit the disk of a container. Both are believed until the engine refuses."""

    async def make(
        self, spec: BoxSpec, options: DockerOptions, engine: EngineFacts, *, pool: bool = False
    ) -> Seen:
        """A container that does not run yet. The record of the box is written before. ``pool``: it
        will wait for its box.
        """
        container.check_options(options, engine)
        image = await self._images.facts(options)
        plan = Plan(
            spec=spec,
            options=options,
            image=image,
            engine=engine,
            has_agent=bool(image.python) and options.agent is not False,
            shared=self.shared,
            quota=self._quota and engine.may_limit_disk,
            pool=pool,
        )
        container.check(plan, self._folders.home, self._engine.url)
        self._folders.write(BoxRecord(spec=spec))
        self._folders.lay_out(spec.key)
        try:
            await self._create(plan)
            seen = await find(self._engine, spec.key)
            if seen is None:
                raise BoxGone(f"the container of sandbox {spec.key} was removed at once")
            check_ours(spec, seen)
        except BaseException:
            await remove(self._engine, self._folders, spec.key)
            raise
        return seen

    async def _create(self, plan: Plan) -> None:
        name = container_name(plan.spec.key)
        doing = f"create the container {name}"
        try:
            await self._engine.call(doing, lambda api: self._ask(api, plan, name))
        except EngineConflict:
            return  # another process was quicker, or it is not ours: the caller looks
        except EngineRefused as error:
            less = self._with_less(plan, str(error).lower())
            if less is None:
                raise
            await self._create(less)

    def _ask(self, api: Any, plan: Plan, name: str) -> None:
        """In a thread."""
        if plan.options.egress:
            egress.create(api, plan, self._folders, self._patience)
        if not plan.options.read_only:
            container.create(api, plan, self._folders, name)
            return
        keeper_name = container_name(container.keeper_key(plan.spec.key))
        keeper = container.create_keeper(api, plan, keeper_name)
        try:
            preparation.put(api, keeper, "/", _parts(plan))
            container.create(api, plan, self._folders, name, volumes_of=keeper)
        finally:
            api.remove_container(keeper, force=True)  # the volumes stay: they are the box's now

    def _with_less(self, plan: Plan, why: str) -> Plan | None:
        if plan.quota and ("storage-opt" in why or "storage opt" in why or "quota" in why):
            self._quota = False
            return msgspec.structs.replace(plan, quota=False)
        if plan.shared and not plan.spec.grants and ("bind source" in why or "mounts" in why):
            self.shared = False
            return msgspec.structs.replace(plan, shared=False)
        return None


def check_ours(spec: BoxSpec, seen: Seen) -> None:
    """Raises ForeignContainer if the container was not made for this box."""
    if not is_box_of(spec, seen.name, seen.labels):
        raise ForeignContainer(
            f"the container {seen.name} ({seen.id[:12]}) has the name that sandbox {spec.key} "
            "needs, but it is not that sandbox: rename or remove it (docker rm)",
            container=seen.id,
        )


def _parts(plan: Plan) -> list[preparation.Part]:
    return preparation.parts_of(
        plan.spec.root,
        plan.user,
        has_agent=plan.has_agent,
        shared=plan.shared,
        in_memory=plan.in_memory,
        several_users=False,
    )
