"""Strict reading of requests: what a client of this vendor must not send is noted, and refused
where the vendor refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from aiohttp import web
from vendors.daytona.refusals import Refusal
from vendors.server import Vendor

Kind = Literal["string", "boolean", "integer", "texts", "strings", "objects", "object"]
"""``texts`` is an object of strings, ``strings`` and ``objects`` are arrays."""
EXPECTED_HEADERS = ("X-Daytona-Source", "X-Daytona-SDK-Version", "User-Agent")
COMPLAINTS: dict[Kind, str] = {
    "string": "must be a string",
    "boolean": "must be a boolean value",
    "integer": "must be a number conforming to the specified constraints",
    "texts": "must be an object",
    "strings": "must be an array",
    "objects": "must be an array",
    "object": "must be an object",
}


def authenticated(request: web.Request, vendor: Vendor) -> None:
    """Check the key and note what an SDK would have sent as well.

    Raises:
        Refusal: there is no key, or a wrong one.
    """
    for name in EXPECTED_HEADERS:
        if name not in request.headers:
            vendor.protocol_error(request, f"header {name} is missing")
    if request.headers.get("Authorization") != f"Bearer {vendor.api_key}":
        raise Refusal(401, "Invalid credentials")


def query(request: web.Request, vendor: Vendor, *allowed: str) -> Mapping[str, str]:
    """The query, with unknown parameters noted."""
    for name in request.query:
        if name not in allowed:
            vendor.protocol_error(request, f"unknown query parameter {name}")
    return request.query


async def body(
    request: web.Request,
    vendor: Vendor,
    fields: Mapping[str, Kind],
    *,
    required: tuple[str, ...] = (),
    code: str | None = None,
) -> dict[str, Any]:
    """The JSON body, with unknown fields noted and left out.

    Raises:
        Refusal: it is no JSON object, a required field is missing, or a value has the wrong type.
    """
    if request.content_type != "application/json":
        vendor.protocol_error(request, f"content type is {request.content_type}")
    try:
        found = await request.json() if request.body_exists else {}
    except ValueError:
        raise Refusal(400, "invalid request body: not JSON", code) from None
    if not isinstance(found, dict):
        raise Refusal(400, "invalid request body: not an object", code)
    for name in found:
        if name not in fields:
            vendor.protocol_error(request, f"unknown field {name}")
    known = {name: value for name, value in found.items() if name in fields and value is not None}
    wrong = [
        f"{name} {COMPLAINTS[fields[name]]}"
        for name, value in known.items()
        if not _fits(value, fields[name])
    ]
    wrong += [f"{name} should not be empty" for name in required if name not in known]
    if wrong:
        raise Refusal(400, ", ".join(wrong), code)
    return known


def nothing(request: web.Request, vendor: Vendor) -> None:
    """Note a body where none belongs."""
    if request.body_exists and request.content_length:
        vendor.protocol_error(request, "a body is sent where none belongs")


def _fits(value: object, kind: Kind) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "texts":
            return isinstance(value, dict) and all(isinstance(it, str) for it in value.values())
        case "strings":
            return isinstance(value, list) and all(isinstance(it, str) for it in value)
        case "objects":
            return isinstance(value, list) and all(isinstance(it, dict) for it in value)
        case "object":
            return isinstance(value, dict)
