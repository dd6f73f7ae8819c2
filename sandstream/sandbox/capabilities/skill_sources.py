"""Sources of skills that are not defined in code: the index first, the files on demand."""

from __future__ import annotations

import abc
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sandstream.sandbox import host_sources
from sandstream.sandbox.capabilities.front_matter import parse_front_matter
from sandstream.sandbox.capabilities.skill import NO_DESCRIPTION, SkillMetadata
from sandstream.sandbox.entries import BaseEntry, Dir, File, LocalDir, LocalFile
from sandstream.sandbox.errors import (
    LocalDirReadError,
    LocalFileReadError,
    SkillsConfigError,
    WorkspaceReadNotFoundError,
)
from sandstream.sandbox.types import User
from sandstream.sandbox.workspace_paths import SandboxPathGrant, coerce_posix_path

SKILL_FILE = "SKILL.md"


class LazySkillSource(BaseModel, abc.ABC):
    """Skills that are written one by one when the model requests them."""

    @abc.abstractmethod
    def list_skill_metadata(
        self, *, skills_path: str, source_grants: tuple[SandboxPathGrant, ...] = ()
    ) -> list[SkillMetadata]:
        """The index of all skills.

        Args:
            skills_path: The directory of the skills in the workspace.
            source_grants: Paths outside the working directory that may be read.
        """

    @abc.abstractmethod
    async def load_skill(
        self,
        *,
        skill_name: str,
        session: Any,
        skills_path: str,
        user: str | User | None = None,
    ) -> dict[str, str]:
        """Write one skill; return its ``status``, ``skill_name`` and ``path``.

        Args:
            skill_name: The name of the skill, or of its directory.
            session: The sandbox session to write through.
            skills_path: The directory of the skills in the workspace.
            user: Act as this account; ``None`` is the sandbox's own.

        Raises:
            SkillsConfigError: There is no such skill, or more than one.
        """


class LocalDirLazySkillSource(LazySkillSource):
    """Skills in a directory of this machine, one subdirectory each.

    Example:
        source = LocalDirLazySkillSource(source=LocalDir(src="skills"))
        agent = SandboxAgent(name="Maintainer", capabilities=[Skills(lazy_from=source), Shell()])
    """

    source: LocalDir
    """The directory on this machine."""

    def list_skill_metadata(
        self, *, skills_path: str, source_grants: tuple[SandboxPathGrant, ...] = ()
    ) -> list[SkillMetadata]:
        root = self._root(source_grants)
        return [] if root is None else skills_in_directory(root, skills_path)

    async def load_skill(
        self,
        *,
        skill_name: str,
        session: Any,
        skills_path: str,
        user: str | User | None = None,
    ) -> dict[str, str]:
        manifest = session.state.manifest
        root = self._root(manifest.extra_path_grants)
        if root is None:
            raise SkillsConfigError(
                message="lazy skill source directory is unavailable",
                context={"skill_name": skill_name},
            )
        skill = _the_one(skill_name, skills_in_directory(root, skills_path), skills_path)
        target = Path(manifest.root) / skill.path
        is_loaded = await _exists(session, target / SKILL_FILE, user)
        if not is_loaded:
            entry = self.source.model_copy(update={"src": root / skill.path.name}, deep=True)
            await entry.apply(session, target, base_dir=Path.cwd(), user=user)
        return {
            "status": "already_loaded" if is_loaded else "loaded",
            "skill_name": skill.name,
            "path": skill.path.as_posix(),
        }

    def _root(self, grants: Sequence[SandboxPathGrant]) -> Path | None:
        if self.source.src is None:
            return None
        try:
            return host_sources.check_directory(self.source.src, Path.cwd(), grants)
        except LocalDirReadError:
            return None


def _the_one(name: str, skills: list[SkillMetadata], skills_path: str) -> SkillMetadata:
    found = [skill for skill in skills if name in (skill.name, skill.path.name)]
    if not found:
        raise SkillsConfigError(
            message="lazy skill not found",
            context={"skill_name": name, "skills_path": skills_path},
        )
    if len(found) > 1:
        raise SkillsConfigError(
            message="lazy skill name is ambiguous",
            context={
                "skill_name": name,
                "matching_paths": [skill.path.as_posix() for skill in found],
            },
        )
    return found[0]


async def _exists(session: Any, path: Path, user: str | User | None) -> bool:
    try:
        handle = await session.read(path, user=user)
    except (FileNotFoundError, WorkspaceReadNotFoundError):
        return False
    handle.close()
    return True


def skills_in_directory(root: Path, skills_path: str) -> list[SkillMetadata]:
    """The skills of a host directory. Links are not followed, so they are ignored."""
    found = []
    for folder in sorted(root.iterdir(), key=lambda path: path.name):
        file = folder / SKILL_FILE
        if not (_is(folder, stat.S_IFDIR) and _is(file, stat.S_IFREG)):
            continue
        try:
            markdown = file.read_bytes().decode(errors="replace")
        except OSError:
            continue  # not readable: ignored
        found.append(skill_of(markdown, folder.name, skills_path))
    return found


def _is(path: Path, kind: int) -> bool:
    try:
        return stat.S_IFMT(path.lstat().st_mode) == kind
    except OSError:
        return False


def skill_of(markdown: str, name: str, skills_path: str) -> SkillMetadata:
    """A skill from the front matter of its file; ``name`` is the name of its directory."""
    head = parse_front_matter(markdown)
    return SkillMetadata(
        name=head.get("name", name),
        description=head.get("description", NO_DESCRIPTION),
        path=Path(skills_path) / name,
    )


def skills_in_entry(
    entry: BaseEntry, skills_path: str, grants: Sequence[SandboxPathGrant]
) -> list[SkillMetadata]:
    """The skills of an entry whose content is known in this process: ``Dir`` or ``LocalDir``."""
    if isinstance(entry, LocalDir):
        root = _host_directory(entry, grants)
        return [] if root is None else skills_in_directory(root, skills_path)
    if not isinstance(entry, Dir):
        return []
    folders = {coerce_posix_path(key).as_posix(): each for key, each in entry.children.items()}
    found = []
    for name, folder in folders.items():
        markdown = _skill_file_in(folder, grants)
        if markdown is not None:
            found.append(skill_of(markdown, name, skills_path))
    if found:
        return found
    return [
        SkillMetadata(name, folder.description or NO_DESCRIPTION, Path(skills_path) / name)
        for name, folder in folders.items()
        if isinstance(folder, Dir)
    ]


def _skill_file_in(folder: BaseEntry, grants: Sequence[SandboxPathGrant]) -> str | None:
    if isinstance(folder, LocalDir):
        root = _host_directory(folder, grants)
        file: BaseEntry | None = None if root is None else LocalFile(src=root / SKILL_FILE)
    elif isinstance(folder, Dir):
        file = next((each for key, each in folder.children.items() if str(key) == SKILL_FILE), None)
    else:
        return None
    if isinstance(file, File):
        return file.content.decode(errors="replace")
    if isinstance(file, LocalFile):
        try:
            path = host_sources.check_file(file.src, Path.cwd(), grants)
            return path.read_bytes().decode(errors="replace")
        except (LocalFileReadError, OSError):
            return None
    return None


def _host_directory(entry: LocalDir, grants: Sequence[SandboxPathGrant]) -> Path | None:
    if entry.src is None:
        return None
    try:
        return host_sources.check_directory(entry.src, Path.cwd(), grants)
    except LocalDirReadError:
        return None  # writing the entry reports the error
