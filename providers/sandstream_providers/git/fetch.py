"""Fetching a repository for a box: with network, in a cage of its own, far from the box's files.

The clone lies in a directory that the box cannot see; its files go into the box through the box's
own agent, which knows where they may lie. So nothing that the box has planted, links least of all,
is ever followed from outside.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sandstream_providers.interface import Box, FileWrite, GitFailed, Limits, ResolveRule
from sandstream_providers.local import cage
from sandstream_providers.local.host import Host
from sandstream_providers.local.processes import ChildFds, run_once
from sandstream_providers.local.records import BoxRecord, Layout
from sandstream_providers.local.removal import remove_tree

_CLONE_S = 600.0
_COMMIT = re.compile(r"[0-9a-fA-F]{7,40}")
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_FILES = 500
_PIECE_BYTES = 1024 * 1024
_SAID_BYTES = 1000
_PLACE = "/repository"
_CLONED = "clone"
_EXIT_CLONE, _EXIT_REF = 10, 11

_SCRIPT = f"""\
cd "$1" || exit 12
url=$2 ref=$3 kind=$4
case $kind in
default) git clone -q --depth 1 --no-tags -- "$url" {_CLONED} || exit {_EXIT_CLONE} ;;
name)
  if ! git clone -q --depth 1 --no-tags --single-branch --branch "$ref" -- "$url" {_CLONED}; then
    git ls-remote -q -- "$url" >/dev/null 2>&1 && exit {_EXIT_REF}
    exit {_EXIT_CLONE}
  fi ;;
commit)
  git init -q {_CLONED} && git -C {_CLONED} remote add origin "$url" || exit {_EXIT_CLONE}
  if git -C {_CLONED} fetch -q --depth 1 --no-tags origin "$ref" 2>/dev/null; then
    git -C {_CLONED} checkout -q --detach FETCH_HEAD || exit {_EXIT_REF}
  else
    rm -rf {_CLONED}
    git clone -q --no-checkout -- "$url" {_CLONED} || exit {_EXIT_CLONE}
    git -C {_CLONED} checkout -q --detach "$ref" || exit {_EXIT_REF}
  fi ;;
esac
"""
"""A shortened commit cannot be asked for over the wire: then all is fetched and looked through. A
branch may have a name that looks like a commit; the checkout finds it."""

_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "init.templateDir": "",
    "init.defaultBranch": "main",
    "submodule.recurse": "false",
    "safe.directory": "*",
    "credential.helper": "",
    "advice.detachedHead": "false",
}


async def fetch(
    host: Host, layout: Layout, record: BoxRecord, box: Box, url: str, ref: str, target: str
) -> None:
    """Clone, then hand the files to the box. Raises :class:`GitFailed`."""
    if shutil.which("git", path=cage.PATH) is None:
        raise GitFailed(
            "git is not installed on this machine: apt-get install git", reason="missing"
        )
    if "\0" in unquote(url) + ref:
        raise GitFailed(f"not the address of a repository: {url!r}", reason="clone", url=url)
    if ref.startswith("-"):
        raise GitFailed(f"not the name of a branch, tag or commit: {ref!r}", reason="ref", url=url)
    folder = layout.folder(record.spec.key) / f"git-{uuid.uuid4().hex}"
    folder.mkdir(mode=0o755)
    try:
        if record.uid is not None:
            os.chown(folder, record.uid, record.uid)
        await _clone(host, record, folder, url, ref)
        await _hand_over(folder / _CLONED, box, target, record)
    finally:
        await remove_tree(folder)


async def _clone(host: Host, record: BoxRecord, folder: Path, url: str, ref: str) -> None:
    kind = "default" if not ref else "commit" if _COMMIT.fullmatch(ref) else "name"
    local = urlsplit(url).scheme == "file"
    with ChildFds() as fds:
        argv = _command(host, record, folder, fds, unquote(urlsplit(url).path) if local else None)
        place = str(folder) if host.bubblewrap is None else _PLACE
        env = [f"{name}={value}" for name, value in _environment(place, local).items()]
        argv += ["env", "-i", *env, "/bin/sh", "-c", _SCRIPT, "git", place, url, ref, kind]
        code, said = await run_once(argv, {"PATH": cage.PATH}, fds, timeout_s=_CLONE_S)
    said = said.strip()[-_SAID_BYTES:]
    if code == _EXIT_REF:
        raise GitFailed(f"{url} has no {ref!r}: {said}", reason="ref", url=url, ref=ref)
    if code != 0:
        why = said or f"exit code {code}"
        raise GitFailed(f"cannot clone {url}: {why}", reason="clone", url=url, ref=ref)


def _command(
    host: Host, record: BoxRecord, folder: Path, fds: ChildFds, source: str | None
) -> list[str]:
    """The prefix that runs git: alone with its directory, where there is isolation."""
    if host.bubblewrap is None:
        return []
    fds.add_data(b"go\n")
    mounts = []
    if record.uid is not None:
        closed = cage.first_closed(folder)
        if closed is not None:
            mounts.append((folder, closed))
            folder = closed
    limits = Limits(memory_mb=None)
    command = [
        *cage.as_user(record.uid),
        *cage.bubblewrap(
            host.bubblewrap,
            fds,
            root=_PLACE,
            network=True,
            workspace=folder,
            limits=limits,
            read_only=[] if source is None else [source],
            seccomp=host.seccomp,
            die_with_parent=True,
        ),
        "--",
        *cage.limits_prefix(limits, open_files=host.open_files),
    ]
    return cage.launcher(command, groups=[], mounts=mounts)


def _environment(home: str, local: bool) -> dict[str, str]:
    config: dict[str, str] = {"GIT_CONFIG_COUNT": str(len(_CONFIG))}
    for number, (name, value) in enumerate(_CONFIG.items()):
        config |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return {
        **cage.BASE_ENV,
        **config,
        "LC_ALL": "C",
        "HOME": home,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/etc/gitconfig" if home == _PLACE else "/dev/null",
        "GIT_ALLOW_PROTOCOL": "file" if local else "http:https:git:ssh",
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
    }


async def _hand_over(source: Path, box: Box, target: str, record: BoxRecord) -> None:
    roots = [box.root, *(grant.path for grant in record.spec.grants if not grant.read_only)]
    rule = ResolveRule(roots=roots)
    fetch_id = uuid.uuid4().hex
    batches = _batches(source, target)
    number = 0
    while batch := await asyncio.to_thread(next, batches, None):
        number += 1
        if isinstance(batch, list):
            await box.change(f"git-{fetch_id}-{number}", batch, rule)
        else:
            path, data, at = batch
            await box.append(f"git-{fetch_id}-{number}", path, data, rule, at=at)


Piece = tuple[str, bytes, int]


def _batches(source: Path, target: str) -> Iterator[list[FileWrite] | Piece]:
    """All files, many small ones at once, big ones in pieces. Follows no links."""
    batch, size = [FileWrite(path=target, kind="dir")], 0
    for folder, folders, files in os.walk(source):
        below = os.path.relpath(folder, source)
        inside = posixpath.normpath(posixpath.join(target, below))
        for name in sorted([*folders, *files]):
            path, found = Path(folder, name), posixpath.join(inside, name)
            status = path.lstat()
            mode = stat.S_IMODE(status.st_mode) & 0o777
            if stat.S_ISLNK(status.st_mode):
                batch.append(FileWrite(path=found, kind="link", target=str(path.readlink())))
            elif stat.S_ISDIR(status.st_mode):
                batch.append(FileWrite(path=found, kind="dir", mode=mode))
            elif status.st_size <= _PIECE_BYTES:
                batch.append(FileWrite(path=found, data=path.read_bytes(), mode=mode))
                size += status.st_size
            else:
                yield [*batch, FileWrite(path=found, mode=mode | stat.S_IWUSR)]
                batch, size = [], 0
                yield from _pieces(path, found)
            if size >= _BATCH_BYTES or len(batch) >= _BATCH_FILES:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def _pieces(path: Path, found: str) -> Iterator[Piece]:
    at = 0
    with path.open("rb") as file:
        while data := file.read(_PIECE_BYTES):
            yield found, data, at
            at += len(data)
