"""Fetching a repository for a box: with network, in a directory that the box cannot see.

The files of the clone go into the box through the box's own agent, which knows where files may lie.
So nothing that the box has planted, in particular no link, is ever followed from outside.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
import shutil
import stat
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sandstream_providers.addresses import Resolve
from sandstream_providers.git.room import CloneRoom
from sandstream_providers.git.route import Route, route_to
from sandstream_providers.git_urls import shown_url, without_credentials
from sandstream_providers.interface import Box, FileWrite, GitFailed, ResolveRule
from sandstream_providers.processes import BASE_ENV, PATH, ChildFds, run_once

_CLONE_S = 600.0
_COMMIT = re.compile(r"[0-9a-fA-F]{7,40}")
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_FILES = 500
_PIECE_BYTES = 1024 * 1024
_SAID_BYTES = 1000
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
"""Git's protocol has no request for a shortened commit: then everything is fetched and searched. A
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
    room: CloneRoom,
    box: Box,
    roots: Sequence[str],
    url: str,
    ref: str,
    target: str,
    *,
    public_only: bool,
    resolve: Resolve,
) -> None:
    """Clone into the room, then write the files into the box, below one of these roots.

    Raises:
        GitFailed: ``data["reason"]`` says why.
    """
    if shutil.which("git", path=PATH) is None:
        raise GitFailed(
            "git is not installed on this machine: apt-get install git", reason="missing"
        )
    shown = shown_url(url)
    if "\0" in unquote(url) + ref or url.startswith("-"):
        raise GitFailed(f"not the address of a repository: {shown!r}", reason="clone", url=shown)
    if ref.startswith("-"):
        message = f"not the name of a branch, tag or commit: {ref!r}"
        raise GitFailed(message, reason="ref", url=shown)
    async with route_to(url, public_only=public_only, resolve=resolve) as route:
        await _clone(room, route, url, ref)
        await _hand_over(room.folder / _CLONED, box, target, roots)


async def _clone(room: CloneRoom, route: Route, url: str, ref: str) -> None:
    kind = "default" if not ref else "commit" if _COMMIT.fullmatch(ref) else "name"
    source = unquote(urlsplit(url).path) if route.protocols == "file" else None
    with ChildFds() as fds:
        argv = room.command(fds, source)
        env = [f"{name}={value}" for name, value in _environment(room, route).items()]
        argv += ["env", "-i", *env, "/bin/sh", "-c", _SCRIPT, "git"]
        argv += [room.place, route.url, ref, kind]
        code, said = await run_once(argv, {"PATH": PATH}, fds, timeout_s=_CLONE_S)
    if code == 0:
        return
    refusal = route.refusal()
    if refusal is not None:
        raise refusal
    shown, said = shown_url(url), without_credentials(said.strip(), url)[-_SAID_BYTES:]
    if code == _EXIT_REF:
        raise GitFailed(f"{shown} has no {ref!r}: {said}", reason="ref", url=shown, ref=ref)
    why = said or f"exit code {code}"
    raise GitFailed(f"cannot clone {shown}: {why}", reason="clone", url=shown, ref=ref)


def _environment(room: CloneRoom, route: Route) -> dict[str, str]:
    settings = {**_CONFIG, **route.config}
    config: dict[str, str] = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings.items()):
        config |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return {
        **BASE_ENV,
        **config,
        "LC_ALL": "C",
        "HOME": room.place,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/etc/gitconfig" if room.is_caged else "/dev/null",
        "GIT_ALLOW_PROTOCOL": route.protocols,
        "GIT_SSH_COMMAND": route.ssh,
        "GIT_SSH_VARIANT": "ssh",
    }


async def _hand_over(source: Path, box: Box, target: str, roots: Sequence[str]) -> None:
    rule = ResolveRule(roots=[*roots])
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
