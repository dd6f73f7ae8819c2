"""One skill: instructions in a ``SKILL.md``, with the files they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from sandstream.sandbox.capabilities.skill_paths import checked_relative_path
from sandstream.sandbox.entries import BaseEntry, Dir, File, LocalFile
from sandstream.sandbox.errors import SkillsConfigError

_FOLDERS = ("scripts", "references", "assets")
NO_DESCRIPTION = "No description provided."


@dataclass(frozen=True)
class SkillMetadata:
    """The data about a skill for the system prompt."""

    name: str
    """The name by which the model asks for the skill."""
    description: str
    """Tells the model when to use the skill."""
    path: Path
    """The path of its directory, relative to the workspace root."""


class Skill(BaseModel):
    """A skill defined in code.

    Example:
        release = Skill(
            name="release",
            description="How to publish a version.",
            content="Run `make release` and check its output.",
        )
        agent = SandboxAgent(name="Maintainer", capabilities=[Skills(skills=[release]), Shell()])
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: str
    """The name, and also its directory relative to the skills root."""
    description: str
    """Tells the model when to use the skill."""
    content: str | bytes | BaseEntry
    """The content of its ``SKILL.md``."""
    compatibility: str | None = Field(default=None)
    """What the skill needs, for people; it has no effect."""
    scripts: dict[str | Path, BaseEntry] = Field(default_factory=dict)
    """Programs of the skill, by their paths below ``scripts``."""
    references: dict[str | Path, BaseEntry] = Field(default_factory=dict)
    """Documents of the skill, by their paths below ``references``."""
    assets: dict[str | Path, BaseEntry] = Field(default_factory=dict)
    """Other files of the skill, by their paths below ``assets``."""
    deferred: bool = Field(default=False)
    """Accepted for compatibility; it has no effect."""

    @field_validator("content", mode="before")
    @classmethod
    def _parse_content(cls, value: object) -> object:
        return BaseEntry.parse(value) if isinstance(value, Mapping) else value

    @field_validator(*_FOLDERS, mode="before")
    @classmethod
    def _parse_folder(cls, value: object) -> dict[str | Path, BaseEntry]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise TypeError(f"must be a mapping of paths to entries, not {type(value).__name__}")
        return {key: BaseEntry.parse(entry) for key, entry in value.items()}

    def model_post_init(self, context: Any, /) -> None:
        checked_relative_path(self.name, field="name", context={"skill_name": self.name})
        content = self.content_artifact()
        if not isinstance(content, File | LocalFile):
            raise SkillsConfigError(
                message="skill content must be file-like",
                context={
                    "field": "content",
                    "skill_name": self.name,
                    "content_type": content.type,
                },
            )
        for folder in _FOLDERS:
            setattr(self, folder, self._with_checked_paths(folder))

    def _with_checked_paths(self, folder: str) -> dict[str | Path, BaseEntry]:
        checked: dict[str | Path, BaseEntry] = {}
        entries: dict[str | Path, BaseEntry] = getattr(self, folder)
        for key, entry in entries.items():
            where = {"skill_name": self.name, "entry_path": str(key)}
            path = checked_relative_path(key, field=folder, context=where).as_posix()
            if path in checked:
                raise SkillsConfigError(
                    message=f"duplicate entry path in skill {folder}",
                    context={"skill_name": self.name, "field": folder, "entry_path": path},
                )
            checked[path] = entry
        return checked

    def content_artifact(self) -> BaseEntry:
        """The ``SKILL.md`` as an entry."""
        if isinstance(self.content, str):
            return File(content=self.content.encode())
        if isinstance(self.content, bytes):
            return File(content=self.content)
        return self.content

    def as_dir_entry(self) -> Dir:
        """The whole skill as an entry."""
        children: dict[str | Path, BaseEntry] = {"SKILL.md": self.content_artifact()}
        for folder in _FOLDERS:
            if entries := getattr(self, folder):
                children[folder] = Dir(children=entries)
        return Dir(children=children)
