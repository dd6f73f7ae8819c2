"""Contents of files, in and out: the daemon's multipart calls and signed links."""

from __future__ import annotations

import base64
import errno
import hashlib
import hmac
import json
import re
import time
from pathlib import Path
from urllib.parse import quote

from aiohttp import BodyPartReader, web
from vendors.daytona import checks
from vendors.daytona.daemon.daemon import Daemon
from vendors.daytona.daemon.file_rights import Files, failure, refusal
from vendors.daytona.refusals import Refusal, now
from vendors.exchange import Exchange
from vendors.server import Vendor

BOUNDARY = "DAYTONA-FILE-BOUNDARY"
CHUNK = 65_536
FIELD = re.compile(r"files\[(\d+)\]\.(path|file)")
UNSAFE = re.compile(r"[\r\n\0]")


async def bulk_upload(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.StreamResponse:
    """``POST /files/bulk-upload``: each path comes before its content; parents are made."""
    if request.content_type != "multipart/form-data":
        return web.json_response({"errors": ["invalid multipart form"]}, status=400)
    targets: dict[str, str] = {}
    errors: list[str] = []
    files: list[dict[str, object]] = []
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        name = FIELD.fullmatch(part.name or "")
        if name is None:
            vendor.protocol_error(request, f"unknown part {part.name}")
            continue
        index, kind = name.groups()
        if kind == "path":
            targets[index] = (await part.text()).strip()
            if not targets[index]:
                errors.append(f"path[{index}]: empty path")
        elif index not in targets:
            vendor.protocol_error(request, f"files[{index}].file comes before its path")
            errors.append(f"file[{index}]: missing .path metadata")
        elif target := targets[index]:
            try:
                files.append({"path": target, "bytes": await _store(part, daemon, target)})
            except OSError as error:
                errors.append(f"{target}: {failure('create: open', target, error)}")
    if errors:
        return web.json_response({"errors": errors, "files": files}, status=400)
    return web.json_response({"files": files})


async def upload(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.StreamResponse:
    """``POST /files/upload-v2``: one file, in the part ``file``."""
    path = checks.query(request, vendor, "path", "expires", "signature").get("path", "")
    if not path:
        raise Refusal(400, "path is required")
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        if part.name == "file":
            try:
                written = await _store(part, daemon, path)
            except OSError as error:
                raise refusal("open", path, error) from None
            return web.json_response({"path": path, "bytes": written})
    raise Refusal(400, "file is required")


async def _store(part: BodyPartReader, daemon: Daemon, inside: str) -> int:
    host = Files(daemon).to_fill(inside)
    host.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with host.open("wb") as file:
        while chunk := await part.read_chunk(CHUNK):
            written += file.write(chunk)
    return written


async def bulk_download(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.StreamResponse:
    """``POST /files/bulk-download``: one part per path, ``file`` or ``error``."""
    asked = await checks.body(request, vendor, {"paths": "strings"}, required=("paths",))
    if not asked["paths"]:
        error = 'request body must be {"paths": [ ... ]} and non-empty'
        return web.json_response({"error": error}, status=400)
    response = web.StreamResponse()
    response.headers["Content-Type"] = f"multipart/form-data; boundary={BOUNDARY}"
    await response.prepare(request)
    exchange = Exchange.of(request)
    files = Files(daemon)
    start = f"--{BOUNDARY}\r\n"
    for path in asked["paths"]:
        await response.write(start.encode())
        start = f"\r\n--{BOUNDARY}\r\n"
        try:
            host = _readable(files, path)
        except Refusal as refused:
            await response.write(_head("error", path, "application/json; charset=utf-8", None))
            await response.write(json.dumps(_error(refused, path, request)).encode())
            continue
        size = host.stat().st_size
        await response.write(_head("file", path, "application/octet-stream", size))
        with host.open("rb") as file:
            while chunk := file.read(CHUNK):
                exchange.count()
                await response.write(chunk)
    exchange.count()
    await response.write(f"\r\n--{BOUNDARY}--\r\n".encode())
    await response.write_eof()
    return response


async def download(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.StreamResponse:
    """``GET /files/download``: the bare content of one file."""
    path = checks.query(request, vendor, "path", "expires", "signature").get("path", "")
    return web.Response(
        body=_readable(Files(daemon), path).read_bytes(), content_type="application/octet-stream"
    )


def signed(request: web.Request, signing_key: str) -> bool:
    """Whether the link carries a valid signature of this box, which replaces the key."""
    expires, path = request.query.get("expires", ""), request.query.get("path", "")
    if not expires.isdigit() or 0 < int(expires) < time.time():
        return False
    canonical = f"v1:files:{request.method}:{path}:{expires}".encode()
    digest = hmac.new(signing_key.encode(), canonical, hashlib.sha256).digest()
    expected = "v1_" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    return hmac.compare_digest(request.query.get("signature", ""), expected)


def _readable(files: Files, path: str) -> Path:
    if not path:
        raise Refusal(400, "invalid file path: path is empty", "INVALID_FILE_PATH")
    try:
        host = files.to_read(path)
    except OSError as error:
        match error.errno:
            case errno.ENOENT | errno.ENOTDIR:
                raise Refusal(404, f"file not found: {path}", "FILE_NOT_FOUND") from None
            case errno.EACCES:
                raise Refusal(403, f"permission denied: {path}", "FILE_ACCESS_DENIED") from None
            case _:
                message = f"failed to open file: {failure('open', path, error)}"
                raise Refusal(500, message, "FILE_READ_FAILED") from None
    if host.is_dir():
        message = f"invalid file path: path points to a directory: {path}"
        raise Refusal(400, message, "INVALID_FILE_PATH")
    if not host.is_file():
        raise Refusal(500, f"failed to open file: {path} is a pipe", "FILE_READ_FAILED")
    return host


def _head(name: str, path: str, content_type: str, size: int | None) -> bytes:
    plain = UNSAFE.sub("", path.replace("\\", "\\\\").replace('"', '\\"'))
    disposition = f'form-data; name="{name}"; filename="{plain}"; '.encode("latin-1", "replace")
    lines = [
        b"Content-Disposition: " + disposition + f"filename*=utf-8''{quote(path, safe='')}".encode()
    ]
    if size is not None:
        lines.append(f"Content-Length: {size}".encode())
    lines.append(f"Content-Type: {content_type}".encode())
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _error(refused: Refusal, path: str, request: web.Request) -> dict[str, object]:
    return {
        "statusCode": refused.status,
        "message": refused.message,
        "code": refused.code,
        "source": "DAYTONA_DAEMON",
        "timestamp": now(),
        "path": path,
        "method": request.method,
    }
