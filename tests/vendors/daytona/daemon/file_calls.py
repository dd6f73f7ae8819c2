"""The daemon's file calls: look, list, make, remove, move, change permissions."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aiohttp import web
from vendors.daytona import checks
from vendors.daytona.daemon.daemon import Daemon
from vendors.daytona.daemon.file_rights import Files, refusal
from vendors.daytona.refusals import Refusal
from vendors.server import Vendor


def _asked(request: web.Request, vendor: Vendor, *names: str) -> list[str]:
    found = checks.query(request, vendor, *names)
    return [found.get(name, "") for name in names]


@contextlib.contextmanager
def _refusing(operation: str, inside: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise refusal(operation, inside, error) from None


async def info(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.StreamResponse:
    """``GET /files/info``"""
    (path,) = _asked(request, vendor, "path")
    _required(path)
    with _refusing("stat", path):
        return web.json_response(Files(daemon).described(path, full_path=daemon.absolute(path)))


async def list_(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.StreamResponse:
    """``GET /files``: entries by name. Links that lead nowhere are left out."""
    path, depth_text = _asked(request, vendor, "path", "depth")
    if depth_text and (not depth_text.isdigit() or int(depth_text) < 1):
        raise Refusal(400, "depth must be at least 1")
    path = path or "."
    with _refusing("open", path):
        folder = posixpath.normpath(daemon.absolute(path))
        found = _entries(Files(daemon), folder, int(depth_text or 1))
    return web.json_response(found)


def _entries(files: Files, folder: str, depth: int) -> list[dict[str, Any]]:
    host = files.to_read(folder)
    if not host.is_dir():
        raise OSError(errno.ENOTDIR, "", folder)
    found = []
    for name in sorted(entry.name for entry in host.iterdir()):
        inside = posixpath.join(folder, name)
        try:
            entry = files.described(inside, full_path=inside)
        except OSError:
            continue
        found.append(entry)
        if depth > 1 and entry["isDir"]:
            with contextlib.suppress(OSError):
                found += _entries(files, inside, depth - 1)
    return found


async def folder(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.StreamResponse:
    """``POST /files/folder``: with its parents; one that exists is left alone."""
    path, mode = _asked(request, vendor, "path", "mode")
    _required(path)
    rights = _mode(mode) if mode else 0o755
    files = Files(daemon)
    with _refusing("mkdir", path):
        found = files.path(path)
        if found.is_dir():  # needs no rights to its parent
            return web.Response(status=201)
        host = files.to_change(path)
        if found.exists():
            raise OSError(errno.ENOTDIR, "", path)
        missing = [it for it in (host, *host.parents) if not it.exists()]
        for it in reversed(missing):
            it.mkdir()
            it.chmod(rights & ~0o022)
    return web.Response(status=201)


async def delete(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.StreamResponse:
    """``DELETE /files``"""
    path, recursive = _asked(request, vendor, "path", "recursive")
    _required(path)
    files = Files(daemon)
    with _refusing("stat", path):
        is_folder = files.path(path).stat() and files.path(path).is_dir()
    if is_folder and recursive != "true":
        raise Refusal(400, "cannot delete directory without recursive flag")
    with _refusing("unlinkat", path):
        host = files.to_change(path, follow=False)
        if host.is_dir() and not host.is_symlink():
            shutil.rmtree(host)
        else:
            host.unlink()
    return web.Response(status=204)


async def move(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.StreamResponse:
    """``POST /files/move``: the target must not exist, its parent must."""
    source, target = _asked(request, vendor, "source", "destination")
    if not source or not target:
        raise Refusal(400, "source and destination paths are required")
    files = Files(daemon)
    with _refusing("stat", daemon.absolute(source)):
        files.path(source).stat()
    parent = posixpath.dirname(daemon.absolute(target))
    with _refusing("stat", parent):
        files.path(parent).stat()
    if _exists(files, target):
        raise Refusal(409, "destination already exists")
    with _refusing("rename", source):
        shutil.move(files.to_change(source, follow=False), files.to_change(target, follow=False))
    return web.Response(status=200)


async def permissions(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.StreamResponse:
    """``POST /files/permissions``: owners other than the box's user cannot be given here."""
    path, mode, owner, group = _asked(request, vendor, "path", "mode", "owner", "group")
    _required(path)
    with _refusing("stat", path):
        Files(daemon).path(path).stat()
    if mode:
        with _refusing("chmod", path):
            Files(daemon).to_change(path).chmod(_mode(mode))
    for name, value in (("owner", owner), ("group", group)):
        if value and value not in (daemon.user, "1000"):
            known = value in ("root", "0")
            reason = f"chown {path}: operation not permitted"
            unknown = "user not found" if name == "owner" else "group not found"
            raise Refusal(400, f"failed to change ownership: {reason}" if known else unknown)
    return web.Response(status=200)


def _required(path: str) -> None:
    if not path:
        raise Refusal(400, "path is required")


def _mode(text: str) -> int:
    try:
        return int(text, 8) & 0o7777
    except ValueError:
        raise Refusal(400, "invalid mode format") from None


def _exists(files: Files, inside: str) -> bool:
    try:
        found: Path = files.path(inside)
    except OSError:
        return False
    return os.access(found, os.F_OK)
