"""The toolbox proxy: checks who calls, then passes the request to the daemon of the box."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from aiohttp import web
from vendors.daytona import checks
from vendors.daytona.daemon import execution, file_calls, transfers
from vendors.daytona.daemon import session_calls as sessions
from vendors.daytona.daemon import terminal_calls as terminals
from vendors.daytona.daemon.daemon import Daemon
from vendors.daytona.fleet import Fleet
from vendors.daytona.refusals import Refusal, rendered
from vendors.daytona.sandbox import Sandbox
from vendors.exchange import ConnectionEnds
from vendors.machine import MachineFailed
from vendors.server import Vendor

PREFIX = "/toolbox"
NO_ACTIVITY = "X-Daytona-Skip-Last-Activity-Update"
Call = Callable[[web.Request, Vendor, Daemon], Awaitable[web.StreamResponse]]


class Toolbox:
    """Every route of the daemon, below ``/toolbox/{box}``."""

    def __init__(self, vendor: Vendor, fleet: Fleet) -> None:
        self._vendor = vendor
        self._fleet = fleet

    def add_routes(self, app: web.Application) -> None:
        session, pty = "/process/session/{session}", "/process/pty/{terminal}"
        command = session + "/command/{command}"
        routes: list[tuple[str, str, Call]] = [
            ("POST", "/process/execute", execution.execute),
            ("GET", "/process/session", sessions.list_sessions),
            ("POST", "/process/session", sessions.create_session),
            ("GET", session, sessions.get_session),
            ("DELETE", session, sessions.delete_session),
            ("POST", session + "/exec", sessions.run_in_session),
            ("GET", command, sessions.get_command),
            ("POST", command + "/input", sessions.send_input),
            ("GET", command + "/logs", sessions.get_logs),
            ("GET", "/process/pty", terminals.list_terminals),
            ("POST", "/process/pty", terminals.create_terminal),
            ("GET", "/process/pty/create-connect", terminals.open_terminal),
            ("GET", pty, terminals.get_terminal),
            ("DELETE", pty, terminals.delete_terminal),
            ("GET", pty + "/connect", terminals.connect_terminal),
            ("POST", pty + "/resize", terminals.resize_terminal),
            ("GET", "/files", file_calls.list_),
            ("DELETE", "/files", file_calls.delete),
            ("GET", "/files/info", file_calls.info),
            ("POST", "/files/folder", file_calls.folder),
            ("POST", "/files/move", file_calls.move),
            ("POST", "/files/permissions", file_calls.permissions),
            ("POST", "/files/bulk-upload", transfers.bulk_upload),
            ("POST", "/files/bulk-download", transfers.bulk_download),
            ("GET", "/files/download", transfers.download),
            ("POST", "/files/upload-v2", transfers.upload),
            ("POST", "/env", update_env),
            ("GET", "/user-home-dir", home_dir),
            ("GET", "/work-dir", work_dir),
            ("GET", "/version", version),
        ]
        for method, path, call in routes:
            app.router.add_route(method, PREFIX + "/{box}" + path, self._handler(call))

    def _handler(self, call: Call) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                daemon = self._admitted(request)
            except Refusal as refusal:
                return rendered(refusal, "DAYTONA_PROXY", request)
            try:
                return await self._served(request, call, daemon)
            except Refusal as refusal:
                return rendered(refusal, "DAYTONA_DAEMON", request)

        return handle

    def _admitted(self, request: web.Request) -> Daemon:
        """The daemon that the request is for.

        Raises:
            Refusal: a wrong key (401), or a box that is not started (400, or 404).
        """
        box_id = request.match_info["box"]
        box = self._fleet.boxes.get(box_id)
        if box is None or not transfers.signed(request, box.signing_key):
            checks.authenticated(request, self._vendor)
        if box is None:
            forgotten = self._fleet.settings.toolbox_forgets_deleted
            if box_id in self._fleet.destroyed and not forgotten:
                raise Refusal(404, f"sandbox container not found: no such container: {box_id}")
            raise Refusal(401, "authentication failed: Bearer token is invalid")
        if request.headers.get(NO_ACTIVITY) != "true":
            box.touch()
        return running(box)

    async def _served(self, request: web.Request, call: Call, daemon: Daemon) -> web.StreamResponse:
        """Serve it, unless the box stops first: then the proxy has lost the daemon."""
        serving = asyncio.ensure_future(call(request, self._vendor, daemon))
        ending = asyncio.ensure_future(daemon.ended.wait())
        try:
            await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not daemon.ended.is_set():
                with contextlib.suppress(MachineFailed):
                    return serving.result()
            if request.writer.output_size > 0 or "Upgrade" in request.headers:
                raise ConnectionEnds
            return web.Response(status=502)
        finally:
            ending.cancel()
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await serving


def running(box: Sandbox) -> Daemon:
    """The daemon of a box.

    Raises:
        Refusal: the box is not started (400), or archived (404).
    """
    if box.state == "archived":
        raise Refusal(404, f"sandbox container not found: no such container: {box.id}")
    busy = ("started", "snapshotting", "forking", "stopping", "resizing")
    if box.daemon is None or box.state not in busy:
        raise Refusal(400, "no IP address found. Is the Sandbox started?")
    return box.daemon


async def update_env(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    fields: dict[str, checks.Kind] = {
        "set": "texts",
        "unset": "strings",
        "unsetValuePrefix": "string",
    }
    asked = await checks.body(request, vendor, fields)
    daemon.update_env(asked.get("set", {}), asked.get("unset", []), asked.get("unsetValuePrefix"))
    return web.json_response({"message": "Environment updated"})


async def home_dir(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    return web.json_response({"dir": daemon.home})


async def work_dir(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    return web.json_response({"dir": daemon.work_dir})


async def version(request: web.Request, vendor: Vendor, daemon: Daemon) -> web.Response:
    return web.json_response({"version": "0.226.0"})
