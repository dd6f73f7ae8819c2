"""Answers that refuse a request, in the form of the service that refuses it."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Literal

from aiohttp import web

Source = Literal["DAYTONA_API", "DAYTONA_PROXY", "DAYTONA_DAEMON"]
CODES = {
    400: "BAD_REQUEST",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    408: "REQUEST_TIMEOUT",
    409: "CONFLICT",
    410: "GONE",
    422: "UNPROCESSABLE_ENTITY",
    500: "INTERNAL_SERVER_ERROR",
}


class Refusal(Exception):
    """The request is refused."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


def rendered(
    refusal: Refusal, source: Source, request: web.Request, headers: dict[str, str] | None = None
) -> web.Response:
    """The answer of the control plane, or of the proxy and the daemon behind it."""
    body: dict[str, object] = {
        "statusCode": refusal.status,
        "message": refusal.message,
        "source": source,
        "path": request.path_qs if source == "DAYTONA_API" else request.path,
        "timestamp": now(),
    }
    if source == "DAYTONA_API":
        body["error"] = HTTPStatus(refusal.status).phrase
    else:
        body["method"] = request.method
    code = refusal.code or (CODES.get(refusal.status) if source != "DAYTONA_API" else None)
    if code is not None:
        body["code"] = code
    return web.json_response(body, status=refusal.status, headers=headers)


def now(timestamp: float | None = None) -> str:
    """A time as the API writes it: ISO 8601 with milliseconds."""
    time = datetime.now(UTC) if timestamp is None else datetime.fromtimestamp(timestamp, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
