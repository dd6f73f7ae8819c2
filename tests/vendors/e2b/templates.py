"""Templates, from which boxes are made, and snapshots of boxes, which are templates too."""

from __future__ import annotations

import dataclasses
import secrets
import shutil
import string
import time
from dataclasses import dataclass, field
from pathlib import Path

TEAM = "local-team"
"""The namespace of names that this team gives."""
_DEFAULT_TAG = "default"


@dataclass(frozen=True)
class Template:
    id: str
    alias: str | None
    python: bool = True
    files: Path | None = None
    """The directory whose files a new box starts with."""
    made_from: str | None = None
    """The box that this is a snapshot of."""
    created_at: float = field(default_factory=time.time)

    @property
    def snapshot_id(self) -> str:
        return f"{self.names[0] if self.names else self.id}:{_DEFAULT_TAG}"

    @property
    def names(self) -> list[str]:
        return [f"{TEAM}/{self.alias}"] if self.alias and self.made_from else []


class Templates:
    """``base`` and ``no-python`` (a box without any Python) exist from the beginning."""

    def __init__(self) -> None:
        self._by_id: dict[str, Template] = {}
        self._add(Template("rki5dems9wqfm4r03t7g", "base"))
        self._add(Template("nlhz8vlwyupq845jsdg9", "code-interpreter-v1"))
        self._add(Template("x1q2nopython3tmpl4zz", "no-python", python=False))

    def find(self, reference: str) -> Template | None:
        """The template with this id or name."""
        name = reference.removesuffix(f":{_DEFAULT_TAG}").removeprefix(f"{TEAM}/")
        for template in self._by_id.values():
            if name in (template.id, template.alias):
                return template
        return None

    def add_snapshot(
        self, box_id: str, original: Template, files: Path, name: str | None
    ) -> Template:
        """Remember a snapshot. One with the same name replaces the older one."""
        snapshot = dataclasses.replace(
            original,
            id=new_id(),
            alias=name and name.removeprefix(f"{TEAM}/").split(":")[0],
            files=files,
            made_from=box_id,
            created_at=time.time(),
        )
        if snapshot.alias and (older := self.find(snapshot.alias)) and older.made_from:
            self.remove(older)
        self._add(snapshot)
        return snapshot

    def remove(self, template: Template) -> None:
        del self._by_id[template.id]
        if template.files is not None:
            shutil.rmtree(template.files, ignore_errors=True)

    @property
    def snapshots(self) -> list[Template]:
        """The newest first."""
        found = [template for template in self._by_id.values() if template.made_from]
        return sorted(found, key=lambda template: template.created_at, reverse=True)

    def _add(self, template: Template) -> None:
        self._by_id[template.id] = template


def new_id() -> str:
    """20 characters as the vendor's ids have."""
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(20))
