"""The route ``/files``: contents of files, read and written."""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import hmac
import posixpath
import re
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import BodyPartReader, web
from vendors.e2b import entries
from vendors.e2b.connect_rpc import RpcError
from vendors.e2b.envd import Envd, json_error
from vendors.e2b.sandbox import Sandbox
from vendors.e2b.users import DEFAULT, USERS
from vendors.exchange import Exchange

_CHUNK_BYTES = 32 << 10
_METADATA_PREFIX = "x-metadata-"
_GZIP_WINDOW = 31
_FILE_NAME = re.compile(r'filename="((?:[^"\\]|\\.)*)"')


class FileProblem(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class FilesRoute:
    def __init__(self, envd: Envd) -> None:
        self._envd = envd
        self._vendor = envd.vendor

    def add_routes(self, add: Any) -> None:
        add("GET", "/files", self._envd.in_box(self._read))
        add("POST", "/files", self._envd.in_box(self._write))

    async def _read(self, request: web.Request, box: Sandbox) -> web.StreamResponse:
        try:
            path = self._path(request, box, "read")
            found = await asyncio.to_thread(_readable, box, path)
        except FileProblem as problem:
            return json_error(problem.status, str(problem))
        if "Range" in request.headers:
            return web.FileResponse(found)
        headers = {"Vary": "Accept-Encoding", "Content-Type": "application/octet-stream"}
        name = posixpath.basename(path)
        headers["Content-Disposition"] = f'inline; filename="{name}"'
        compress = None
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            compress = zlib.compressobj(wbits=_GZIP_WINDOW)
        response = web.StreamResponse(headers=headers)
        if compress is None:
            response.content_length = (await asyncio.to_thread(found.stat)).st_size
        await response.prepare(request)
        outgoing = Exchange.of(request).outgoing(response.write)
        async for chunk in _chunks(found):
            data = chunk if compress is None else compress.compress(chunk)
            if data:
                await outgoing.send(data)
        if compress is not None:
            await outgoing.send(compress.flush())
        await outgoing.finish()
        await response.write_eof()
        return response

    async def _write(self, request: web.Request, box: Sandbox) -> web.StreamResponse:
        metadata = {
            name.lower().removeprefix(_METADATA_PREFIX): value
            for name, value in request.headers.items()
            if name.lower().startswith(_METADATA_PREFIX)
        }
        try:
            path = self._path(request, box, "write")
            if request.content_type == "application/octet-stream":
                if "path" not in request.query:
                    text = "path query parameter is required for raw body upload"
                    raise FileProblem(400, text)
                await _store(box, path, request.content.iter_any(), metadata)
                written = [path]
            elif request.content_type.startswith("multipart/"):
                written = await self._write_parts(request, box, metadata)
            else:
                self._vendor.protocol_error(request, f"content type {request.content_type}")
                raise FileProblem(400, f"unsupported content type: {request.content_type}")
        except FileProblem as problem:
            return json_error(problem.status, str(problem))
        return web.json_response([_written(box, path) for path in written])

    async def _write_parts(
        self, request: web.Request, box: Sandbox, metadata: dict[str, str]
    ) -> list[str]:
        user = USERS[request.query.get("username", DEFAULT.name)]
        written: list[str] = []
        reader = await request.multipart()
        async for part in reader:
            if not isinstance(part, BodyPartReader) or part.name != "file":
                self._vendor.protocol_error(request, f"unknown part {part!r}")
                continue
            name = request.query.get("path") or _file_name(part)
            path = user.resolved(name)
            if path in written:
                text = f"you cannot upload multiple files to the same path '{path}'"
                raise FileProblem(400, f"{text} in one upload request")
            await _store(box, path, _part_chunks(part), metadata)
            written.append(path)
        return written

    def _path(self, request: web.Request, box: Sandbox, operation: str) -> str:
        known = {"path", "username", "signature", "signature_expiration"}
        for name in set(request.query) - known:
            self._vendor.protocol_error(request, f"unknown parameter {name}")
        _check_access(request, box, operation)
        name = request.query.get("username", DEFAULT.name)
        if name not in USERS:
            raise FileProblem(401, f"error looking up user '{name}': user: unknown user {name}")
        try:
            return USERS[name].resolved(request.query.get("path", ""))
        except RpcError as error:
            raise FileProblem(400, error.message) from None


def _check_access(request: web.Request, box: Sandbox, operation: str) -> None:
    """The token of the box in a header, or a signature made with it."""
    if box.token is None:
        return
    given = request.headers.get("X-Access-Token")
    if given is not None:
        if not hmac.compare_digest(given, box.token):
            raise FileProblem(401, "access token present in header but does not match")
        return
    signature = request.query.get("signature")
    if signature is None:
        raise FileProblem(401, "missing signature query parameter")
    expires = request.query.get("signature_expiration")
    parts = [request.query.get("path", ""), operation, request.query.get("username", "")]
    parts += [box.token, *([expires] if expires is not None else [])]
    digest = hashlib.sha256(":".join(parts).encode()).digest()
    expected = "v1_" + base64.b64encode(digest).decode().rstrip("=")
    if not hmac.compare_digest(signature, expected):
        raise FileProblem(401, "invalid signature")
    if expires is not None and int(expires) < time.time():
        raise FileProblem(401, "signature is already expired")


def _readable(box: Sandbox, path: str) -> Path:
    try:
        found = box.machine.path(path)
        is_directory = found.is_dir()
        found.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise FileProblem(404, f"path '{path}' does not exist") from None
    except OSError as error:
        raise FileProblem(500, f"error checking if path exists '{path}': {error}") from None
    if is_directory:
        raise FileProblem(400, f"path '{path}' is a directory")
    return found


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(path.open, "rb")
    try:
        while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
            yield chunk
    finally:
        file.close()


async def _part_chunks(part: BodyPartReader) -> AsyncIterator[bytes]:
    while chunk := await part.read_chunk(_CHUNK_BYTES):
        yield bytes(chunk)


def _file_name(part: BodyPartReader) -> str:
    """The whole path; ``part.filename`` would lack its first slash."""
    found = _FILE_NAME.search(part.headers.get("Content-Disposition", ""))
    return "" if found is None else re.sub(r"\\(.)", r"\1", found[1])


async def _store(
    box: Sandbox, path: str, chunks: AsyncIterator[bytes], metadata: dict[str, str]
) -> None:
    """Write a file as the chunks arrive; one that is interrupted stays incomplete."""
    try:
        found = await asyncio.to_thread(_writable, box, path)
        file = await asyncio.to_thread(found.open, "wb")
        try:
            async for chunk in chunks:
                await asyncio.to_thread(file.write, chunk)
        finally:
            await asyncio.to_thread(file.close)
        await asyncio.to_thread(entries.write_metadata, found, metadata)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise FileProblem(507, "not enough disk space available") from None
        raise FileProblem(500, f"error opening file: {error}") from None


def _writable(box: Sandbox, path: str) -> Path:
    try:
        entries.ensure_directories(box.machine, posixpath.dirname(path) or "/")
    except OSError as error:
        text = f"error ensuring directories: failed to create directory: {error}"
        raise FileProblem(500, text) from None
    found = box.machine.path(path, write=True)
    if found.is_dir():
        raise FileProblem(400, f"path is a directory: {path}")
    return found


def _written(box: Sandbox, path: str) -> dict[str, Any]:
    described: dict[str, Any] = {"path": path, "name": posixpath.basename(path), "type": "file"}
    if metadata := entries.read_metadata(box.machine.path(path)):
        described["metadata"] = metadata
    return described
