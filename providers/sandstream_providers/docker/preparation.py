"""What a new container needs inside before it is started: directories, the agent, accounts.

The engine unpacks it into the container while nothing runs there. It does not do that where the
root is read-only, so there a second container, which is never started, shares its volumes with the
first and is prepared in its place.
"""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from sandstream_providers.accounts import check_names, users_of
from sandstream_providers.box.start import agent_source
from sandstream_providers.docker.container import AGENT_COPY, JOBS, RUN, STATE
from sandstream_providers.docker.options import DockerOptions

_FIRST_ID = 1000
_ACCOUNTS = ("passwd", "group")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory to put into a container."""

    path: str
    data: bytes | None = None
    """None: a directory."""
    mode: int = 0o755
    owner: tuple[int, int] = (0, 0)


def parts_of(
    root: str,
    owner: tuple[int, int],
    *,
    has_agent: bool,
    shared: bool,
    in_memory: bool,
    several_users: bool,
) -> list[Part]:
    """The directories of a box, and the agent where it cannot be mounted."""
    parts = []
    if not in_memory:
        parts.append(Part(path=root, owner=owner, mode=0o777 if several_users else 0o755))
    if shared or not has_agent:
        return [*parts, Part(path=JOBS, mode=0o700, owner=owner)]
    return [
        *parts,
        Part(path=RUN, mode=0o700, owner=owner),
        Part(path=STATE, mode=0o700, owner=owner),
        Part(path=AGENT_COPY, data=agent_source(), mode=0o444),
    ]


def archive(parts: Sequence[Part]) -> bytes:
    """A tar file for the engine; paths are relative to where it is unpacked."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for part in parts:
            entry = tarfile.TarInfo(part.path.strip("/"))
            entry.mode, entry.mtime = part.mode, int(time.time())
            entry.uid, entry.gid = part.owner
            entry.type = tarfile.DIRTYPE if part.data is None else tarfile.REGTYPE
            entry.size = len(part.data or b"")
            tar.addfile(entry, io.BytesIO(part.data or b""))
    return buffer.getvalue()


def put(api: Any, container: str, place: str, parts: Sequence[Part]) -> None:
    """In a thread."""
    api.put_archive(container, place, archive(parts))


# --- accounts -------------------------------------------------------------------------------------


def add_accounts(api: Any, container: str, options: DockerOptions, home: str) -> None:
    """Add users and groups to those of the image. In a thread. May be done again."""
    texts = {name: _text(api, container, name) for name in _ACCOUNTS}
    added = with_accounts(texts, options, home)
    parts = [Part(path=name, data=text.encode(), mode=0o644) for name, text in added.items()]
    put(api, container, "/etc", parts)


def with_accounts(texts: dict[str, str], options: DockerOptions, home: str) -> dict[str, str]:
    """The two files with the accounts that they lack. No program of the image is needed."""
    users = _entries(texts["passwd"])
    groups = _entries(texts["group"])
    wanted = users_of(options.users, options.groups)
    check_names([*wanted, *options.groups])
    for name in wanted:
        if name not in users:
            number = _free(users, groups)
            users[name] = [name, "x", number, number, "", home, "/bin/sh"]
            groups.setdefault(name, [name, "x", number, ""])
            users[name][3] = groups[name][2]
    for name, names in options.groups.items():
        group = groups.setdefault(name, [name, "x", _free(users, groups), ""])
        there = [it for it in group[3].split(",") if it]
        group[3] = ",".join(dict.fromkeys([*there, *names]))
    return {"passwd": _joined(users), "group": _joined(groups)}


def _text(api: Any, container: str, name: str) -> str:
    chunks, _ = api.get_archive(container, f"/etc/{name}")
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
        file = tar.extractfile(tar.getmembers()[0])
        return "" if file is None else file.read().decode(errors="surrogateescape")


def _entries(text: str) -> dict[str, list[str]]:
    lines = [line.split(":") for line in text.splitlines() if line.count(":") >= 3]
    return {fields[0]: fields for fields in lines}


def _joined(entries: dict[str, list[str]]) -> str:
    return "".join(":".join(fields) + "\n" for fields in entries.values())


def _free(*taken: dict[str, list[str]]) -> str:
    numbers = {fields[2] for entries in taken for fields in entries.values()}
    return next(str(number) for number in range(_FIRST_ID, 60_000) if str(number) not in numbers)
