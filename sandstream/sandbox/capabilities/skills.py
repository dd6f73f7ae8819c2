"""Skills in the workspace: written there, listed in the prompt, and loaded on demand."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, Field, PrivateAttr, ValidationError, field_validator

from sandstream.sandbox.capabilities.capability import Capability
from sandstream.sandbox.capabilities.skill import Skill, SkillMetadata
from sandstream.sandbox.capabilities.skill_paths import checked_relative_path
from sandstream.sandbox.capabilities.skill_prompt import skills_section
from sandstream.sandbox.capabilities.skill_sources import (
    SKILL_FILE,
    LazySkillSource,
    LocalDirLazySkillSource,
    skill_of,
    skills_in_entry,
)
from sandstream.sandbox.entries import BaseEntry, Dir, LocalDir
from sandstream.sandbox.errors import SandboxError, SkillsConfigError
from sandstream.sandbox.workspace_paths import coerce_posix_path, posix_path_as_path
from sandstream.tool import FunctionTool, default_tool_error_function

if TYPE_CHECKING:
    from sandstream.sandbox.manifest import Manifest

logger = logging.getLogger(__name__)

__all__ = [
    "LazySkillSource",
    "LocalDirLazySkillSource",
    "Skill",
    "SkillMetadata",
    "Skills",
]


class LoadSkillArgs(BaseModel):
    skill_name: str


@dataclass(init=False)
class LoadSkillTool(FunctionTool):
    """Writes one skill into the workspace. Runs in the user's process, which has the skills."""

    tool_name: ClassVar[str] = "load_skill"
    args_model: ClassVar[type[LoadSkillArgs]] = LoadSkillArgs
    tool_description: ClassVar[str] = (
        "Bring one of the listed skills into the workspace, with its SKILL.md, scripts, references "
        "and assets."
    )
    skills: Skills = field(init=False, repr=False, compare=False)

    def __init__(self, *, skills: Skills) -> None:
        self.skills = skills
        super().__init__(
            name=self.tool_name,
            description=self.tool_description,
            params_json_schema=self.args_model.model_json_schema(),
            on_invoke_tool=self._invoke,
            strict_json_schema=False,
            _on_failure=default_tool_error_function,
            _on_failure_is_default=True,
        )

    async def run(self, args: LoadSkillArgs) -> dict[str, str]:
        """Call the tool from code."""
        return await self.skills.load_skill(args.skill_name)

    async def _invoke(self, _: object, arguments: str) -> dict[str, str] | str:
        try:
            args = self.args_model.model_validate_json(arguments)
        except ValidationError:
            return "Invalid tool arguments for skill_name. Check the tool schema and try again."
        try:
            return await self.run(args)
        except SkillsConfigError as error:
            return str(error)


class Skills(Capability):
    """Gives the model skills: defined in code, from one directory, or loaded one by one.

    Raises:
        SkillsConfigError: Not exactly one of ``skills``, ``from_`` and ``lazy_from`` is given.

    Example:
        Skills(from_=LocalDir(src="skills"))
    """

    type: Literal["skills"] = "skills"
    skills: list[Skill] = Field(default_factory=list)
    """Skills that are defined in code."""
    from_: BaseEntry | None = Field(default=None)
    """A directory with one subdirectory for each skill."""
    lazy_from: LazySkillSource | None = Field(default=None)
    """A source from which the model loads single skills with the tool ``load_skill``."""
    skills_path: str = Field(default=".agents")
    """The directory of the skills in the workspace."""

    _seen_inside: list[SkillMetadata] | None = PrivateAttr(default=None)
    """The skills found in the session's workspace, which is searched once."""

    @field_validator("skills", mode="before")
    @classmethod
    def _parse_skills(cls, value: Sequence[Skill | Mapping[str, object]] | None) -> list[Skill]:
        return [
            each if isinstance(each, Skill) else Skill.model_validate(dict(each))
            for each in value or ()
        ]

    @field_validator("from_", mode="before")
    @classmethod
    def _parse_from(cls, value: object) -> BaseEntry | None:
        return None if value is None else BaseEntry.parse(value)

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self.skills_path = str(checked_relative_path(self.skills_path, field="skills_path"))
        sources = [bool(self.skills), self.from_ is not None, self.lazy_from is not None]
        if not any(sources):
            raise SkillsConfigError(
                message="skills capability requires `skills`, `from_`, or `lazy_from`",
                context={"field": "skills"},
            )
        if sum(sources) > 1:
            raise SkillsConfigError(
                message="skills capability accepts only one of `skills`, `from_`, or `lazy_from`",
                context={"field": "skills", "has_from": self.from_ is not None},
            )
        if self.from_ is not None and not self.from_.is_dir:
            raise SkillsConfigError(
                message="`from_` must be a directory-like artifact",
                context={"field": "from_", "artifact_type": self.from_.type},
            )
        seen: set[Path] = set()
        for skill in self.skills:
            path = checked_relative_path(
                skill.name, field="skills[].name", context={"skill_name": skill.name}
            )
            if path in seen:
                raise SkillsConfigError(
                    message=f"duplicate skill name: {skill.name}",
                    context={"field": "skills[].name", "skill_name": skill.name},
                )
            seen.add(path)

    # --- the workspace ----------------------------------------------------------------------------

    def process_manifest(self, manifest: Manifest) -> Manifest:
        root = Path(self.skills_path)
        present = {
            posix_path_as_path(coerce_posix_path(key)): entry
            for key, entry in manifest.entries.items()
        }
        if self.lazy_from is not None:
            self._check_free(root, present)
        elif self.from_ is not None:
            existing = present.get(root)
            if existing is None:
                manifest.entries[root] = self.from_
            elif not existing.is_dir:
                raise SkillsConfigError(
                    message="skills root path already exists in manifest",
                    context={
                        "path": str(root),
                        "source": "from_",
                        "existing_type": existing.type,
                    },
                )
        for skill in self.skills:
            path = root / skill.name
            entry = skill.as_dir_entry()
            if path not in present:
                manifest.entries[path] = entry
            elif present[path] != entry:
                raise SkillsConfigError(
                    message="skill path already exists in manifest",
                    context={"path": str(path), "skill_name": skill.name},
                )
        return manifest

    def _check_free(self, root: Path, present: Mapping[Path, BaseEntry]) -> None:
        """The paths of skills that are written later must be free."""
        overlaps = sorted(
            str(path)
            for path in present
            if path == root or path in root.parents or root in path.parents
        )
        if overlaps:
            raise SkillsConfigError(
                message="skills lazy_from path overlaps existing manifest entries",
                context={"path": str(root), "source": "lazy_from", "overlaps": overlaps},
            )

    # --- the session ------------------------------------------------------------------------------

    def bind(self, session: Any) -> None:
        super().bind(session)
        self._seen_inside = None

    def tools(self) -> list[Any]:
        if self.lazy_from is None:
            return []
        if self.session is None:
            raise ValueError("Skills has no session yet: bind(session) comes before tools()")
        return [LoadSkillTool(skills=self)]

    async def load_skill(self, skill_name: str) -> dict[str, str]:
        """Write one skill of the lazy source into the workspace.

        Args:
            skill_name: The name of the skill, or of its directory.

        Returns:
            The ``status``, the ``skill_name`` and the ``path`` of the skill.

        Raises:
            SkillsConfigError: There is no lazy source, or it has no such skill.
        """
        if self.lazy_from is None:
            raise SkillsConfigError(
                message="load_skill is only available when lazy_from is configured",
                context={"skill_name": skill_name},
            )
        if self.session is None:
            raise ValueError("Skills has no session yet: bind(session) comes before load_skill()")
        result = await self.lazy_from.load_skill(
            skill_name=skill_name,
            session=self.session,
            skills_path=self.skills_path,
            user=self.run_as,
        )
        if self.workspace_scope.cwd is None:
            return result
        path = result.get("path")
        if path is None:
            raise _no_usable_path(skill_name, reason="missing")
        root = self.session.state.manifest.root
        return {**result, "path": self._shown_path(root, skill_name, path)}

    # --- the prompt -------------------------------------------------------------------------------

    def has_static_instructions(self) -> bool:
        return type(self).instructions is Skills.instructions and not self._is_unknown_here()

    def static_instructions(self, manifest: Manifest) -> str | None:
        return self._section(manifest, self._known_here(manifest))

    async def instructions(self, manifest: Manifest) -> str | None:
        if not self._is_unknown_here():
            return self.static_instructions(manifest)
        if self._seen_inside is None:
            self._seen_inside = await self._look_inside(manifest)
        return self._section(manifest, self._seen_inside)

    def _is_unknown_here(self) -> bool:
        """The contents of a repository are known only in the sandbox."""
        return self.from_ is not None and not isinstance(self.from_, Dir | LocalDir)

    def _known_here(self, manifest: Manifest) -> list[SkillMetadata]:
        if self.lazy_from is not None:
            return self.lazy_from.list_skill_metadata(
                skills_path=self.skills_path, source_grants=tuple(manifest.extra_path_grants)
            )
        if self.from_ is not None:
            return skills_in_entry(self.from_, self.skills_path, manifest.extra_path_grants)
        return [
            SkillMetadata(skill.name, skill.description, Path(self.skills_path) / skill.name)
            for skill in self.skills
        ]

    async def _look_inside(self, manifest: Manifest) -> list[SkillMetadata]:
        if self.session is None:
            return []
        root = posix_path_as_path(coerce_posix_path(manifest.root) / self.skills_path)
        try:
            folders = await self.session.ls(root, user=self.run_as)
        except SandboxError as error:
            logger.warning("Skills cannot be listed", extra={"path": str(root)}, exc_info=error)
            return []
        found = []
        for folder in folders:
            if not folder.is_dir():
                continue
            path = posix_path_as_path(coerce_posix_path(folder.path))
            try:
                handle = await self.session.read(path / SKILL_FILE, user=self.run_as)
            except SandboxError:
                continue  # a directory without a readable SKILL.md is not a skill
            with handle:
                markdown = handle.read().decode(errors="replace")
            found.append(skill_of(markdown, path.name, self.skills_path))
        return found

    def _section(self, manifest: Manifest, skills: list[SkillMetadata]) -> str | None:
        if not skills:
            return None
        different = {(skill.name, str(skill.path)): skill for skill in skills}
        lines = [
            (
                skill.name,
                skill.description,
                self._shown_path(manifest.root, skill.name, skill.path),
            )
            for skill in sorted(different.values(), key=lambda skill: skill.name)
        ]
        return skills_section(
            lines,
            lazy=self.lazy_from is not None,
            has_cwd=self.workspace_scope.cwd is not None,
        )

    def _shown_path(self, root: str | Path, skill_name: str, path: str | Path) -> str:
        if self.workspace_scope.cwd is None:
            return str(path).replace("\\", "/")
        try:
            return self.workspace_scope.model_resource_path(
                workspace_root=root, workspace_relative_path=path
            ).as_posix()
        except ValueError as error:
            raise _no_usable_path(skill_name, reason="invalid", path=str(path)) from error


def _no_usable_path(skill_name: str, **context: str) -> SkillsConfigError:
    return SkillsConfigError(
        message=(
            "skill path must be non-empty and workspace-relative when sandbox.cwd is configured"
        ),
        context={"skill_name": skill_name, "field": "path", **context},
    )
