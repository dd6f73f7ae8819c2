"""``view_image``: a picture from the box, in a form that a model can see."""

from __future__ import annotations

import base64
import posixpath
from typing import Annotated

import msgspec
from sandstream_providers.interface import (
    Box,
    BoxGone,
    NotFound,
    PathEscapes,
    ProviderError,
    ResolveRule,
)

from sandstream_actors.sandbox.tools import paths
from sandstream_actors.sandbox.tools.arguments import parse_arguments

MAX_IMAGE_BYTES = 10 * 1024 * 1024
_SVG_HEAD_BYTES = 2048
_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
)


class ImageArguments(msgspec.Struct, frozen=True, kw_only=True):
    path: Annotated[str, msgspec.Meta(min_length=1)]


class ImageError(Exception):
    """The text for the model."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


async def view_image(
    box: Box, rule: ResolveRule, root: str, cwd: str, arguments: str
) -> list[dict[str, str]]:
    """The image as the content of a tool's output.

    Raises:
        BadArguments: if there is no path.
        ImageError: if there is no such image.
    """
    written = parse_arguments(arguments, ImageArguments).path
    try:
        absolute = paths.in_workspace_or_grant(written, root, cwd, rule)
    except paths.PathNotAllowed:
        raise ImageError(
            "Invalid path. Use a path within the workspace or an explicitly granted path.",
            "invalid_manifest_path",
        ) from None
    name = paths.shown(written, absolute, root, cwd)
    data = await _read(box, rule, absolute, name)
    if len(data) > MAX_IMAGE_BYTES:
        raise ImageError(
            f"image path `{name}` exceeded the allowed size of 10MB; "
            "resize or compress the image and try again",
            "image_too_large",
        )
    kind = image_type(absolute, data)
    if kind is None:
        raise ImageError(f"image path `{name}` is not a supported image file", "not_an_image")
    url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    return [{"type": "input_image", "image_url": url}]


async def _read(box: Box, rule: ResolveRule, path: str, name: str) -> bytes:
    try:
        return await box.read(path, rule, limit=MAX_IMAGE_BYTES + 1)
    except NotFound:
        raise ImageError(f"image path `{name}` was not found", "workspace_read_not_found") from None
    except BoxGone:
        raise
    except PathEscapes as error:
        raise ImageError(
            f"unable to read image at `{name}`: InvalidManifestPathError", "invalid_manifest_path"
        ) from error
    except ProviderError as error:
        raise ImageError(
            f"unable to read image at `{name}`: WorkspaceArchiveReadError",
            "workspace_archive_read_error",
        ) from error


def image_type(path: str, data: bytes) -> str | None:
    """The media type, by content; only for SVG the name is good enough."""
    for signature, kind in _SIGNATURES:
        if data.startswith(signature):
            return kind
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    head = data[:_SVG_HEAD_BYTES].lstrip().lower()
    if head.startswith(b"<svg") or (head.startswith(b"<?xml") and b"<svg" in head):
        return "image/svg+xml"
    if posixpath.splitext(path)[1].lower() in (".svg", ".svgz"):
        return "image/svg+xml"
    return None
