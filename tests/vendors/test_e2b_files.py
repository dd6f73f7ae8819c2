"""Files and ports of boxes of the local E2B, driven by the vendor's SDK."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator, Iterator

import aiohttp
import aiohttp.web
import httpx
import pytest
from e2b import (
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    NotEnoughSpaceException,
    SandboxException,
)
from vendors.e2b_boxes import box, in_loop
from vendors.faults import Fault
from vendors.process import VendorServer

SERVER = """
import http.server
class Echo(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = f"{self.path} {self.headers['Host']} ".encode() + body
        self.send_response(201)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VendorServer]:
    with VendorServer.start("e2b", home=tmp_path_factory.mktemp("e2b")) as started:
        yield started


@in_loop
async def test_contents_are_written_and_read(vendor: VendorServer) -> None:
    data = os.urandom(1 << 20)
    async with box(vendor) as sandbox:
        written = await sandbox.files.write("a/b/text", "grüße")
        assert (written.path, written.type) == ("/home/user/a/b/text", FileType.FILE)
        assert await sandbox.files.read("~/a/b/text") == "grüße"
        await sandbox.files.write("/tmp/bytes", data)
        assert bytes(await sandbox.files.read("/tmp/bytes", format="bytes")) == data
        async with await sandbox.files.read("/tmp/bytes", format="stream") as stream:
            assert b"".join([chunk async for chunk in stream]) == data
        assert bytes(await sandbox.files.read("/tmp/bytes", format="bytes", gzip=True)) == data
        assert (await sandbox.commands.run("cat a/b/text")).stdout == "grüße"


@in_loop
async def test_contents_are_streamed_and_compressed(vendor: VendorServer) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for number in range(100):
            yield bytes([number]) * 1000

    async with box(vendor) as sandbox:
        await sandbox.files.write("chunks", chunks())
        assert (await sandbox.files.get_info("chunks")).size == 100_000
        await sandbox.files.write("file", io.BytesIO(b"x" * 100_000), gzip=True)
        assert (await sandbox.files.get_info("file")).size == 100_000
        many = await sandbox.files.write_files(
            [{"path": "one", "data": "1"}, {"path": "/tmp/deep/two", "data": b"2"}]
        )
        assert [found.path for found in many] == ["/home/user/one", "/tmp/deep/two"]
        assert await sandbox.files.read("/tmp/deep/two") == "2"


@in_loop
async def test_metadata_is_attached(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        await sandbox.files.write("file", "x", metadata={"kind": "test"})
        assert (await sandbox.files.get_info("file")).metadata == {"kind": "test"}
        await sandbox.files.write("file", "x")
        assert not (await sandbox.files.get_info("file")).metadata


@in_loop
async def test_entries_are_described(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        await sandbox.commands.run(
            "mkdir -p d/e; echo 1 > d/e/f; chmod 640 d/e/f; ln -s e/f d/link; ln -s / d/out"
        )
        info = await sandbox.files.get_info("d/e/f")
        assert (info.size, info.mode, info.permissions) == (2, 0o640, "-rw-r-----")
        assert (info.owner, info.type, info.path) == ("user", FileType.FILE, "/home/user/d/e/f")
        shallow = await sandbox.files.list("d")
        assert [found.name for found in shallow] == ["e", "link", "out"]
        link = shallow[1]
        assert (link.symlink_target, link.permissions) == ("/home/user/d/e/f", "Lrwxrwxrwx")
        assert shallow[2].type is FileType.DIR
        deep = await sandbox.files.list("d", depth=2)
        assert [found.path.removeprefix("/home/user/d/") for found in deep] == [
            "e",
            "e/f",
            "link",
            "out",
        ]
        assert (await sandbox.files.get_info("/tmp")).permissions == "dtrwxrwxrwx"


@in_loop
async def test_entries_are_changed(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        assert await sandbox.files.make_dir("a/b")
        assert not await sandbox.files.make_dir("a/b")
        await sandbox.files.write("a/b/c", "1")
        moved = await sandbox.files.rename("a/b/c", "d/e")
        assert moved.path == "/home/user/d/e"
        assert not await sandbox.files.exists("a/b/c")
        await sandbox.files.remove("d")
        await sandbox.files.remove("d")
        assert not await sandbox.files.exists("d/e")


@in_loop
async def test_wrong_paths(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        with pytest.raises(FileNotFoundException, match="'/home/user/no' does not exist"):
            await sandbox.files.read("no")
        with pytest.raises(InvalidArgumentException, match="is a directory"):
            await sandbox.files.read("/home/user")
        with pytest.raises(FileNotFoundException):
            await sandbox.files.list("no")
        with pytest.raises(FileNotFoundException):
            await sandbox.files.rename("no", "yes")
        with pytest.raises(SandboxException, match="500"):
            await sandbox.files.write("/etc/of-the-host", "x")
        await sandbox.commands.run("ln -s ../../../../../../../etc/shadow up; ln -s me me")
        with pytest.raises(SandboxException):
            await sandbox.files.write("up", "x")
        with pytest.raises(SandboxException):
            await sandbox.files.list("me")
        vendor.add_fault(Fault("POST /files", "status", status=507))
        with pytest.raises(NotEnoughSpaceException):
            await sandbox.files.write("x", "x")


@in_loop
async def test_signed_addresses(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox:
        await sandbox.files.write("file", "secret")
        url = sandbox.download_url("file", use_signature_expiration=1000)
        # at the shared address, headers still say which box is meant
        headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
        async with httpx.AsyncClient(headers=headers, trust_env=False) as client:
            assert (await client.get(url)).text == "secret"
            assert (await client.get(url.replace("v1_", "v1_x"))).status_code == 401
            old = sandbox.download_url("file", use_signature_expiration=-10)
            assert (await client.get(old)).json()["message"] == "signature is already expired"
            upload = sandbox.upload_url("file")
            sent = await client.post(upload, files={"file": ("name", b"new")})
            assert sent.status_code == 200
        assert await sandbox.files.read("file") == "new"


@in_loop
async def test_boxes_are_closed_to_others(vendor: VendorServer) -> None:
    async with box(vendor) as sandbox, box(vendor) as other:
        headers = sandbox.connection_config.sandbox_headers
        stolen = headers | {"E2b-Sandbox-Id": other.sandbox_id}
        async with httpx.AsyncClient(base_url=vendor.sandbox_url, trust_env=False) as client:
            call = {"json": {}, "headers": headers | {"Connect-Protocol-Version": "1"}}
            assert (await client.post("/process.Process/List", **call)).status_code == 200
            call["headers"] = stolen
            refused = await client.post("/process.Process/List", **call)
            assert (refused.status_code, refused.json()["code"]) == (401, 401)
            assert (await client.get("/files?path=x", headers=stolen)).status_code == 401
            assert (await client.get("/health", headers=stolen)).status_code == 204


@in_loop
async def test_ports_are_reached(vendor: VendorServer) -> None:
    network = {"allow_public_traffic": False}
    async with box(vendor) as sandbox, box(vendor, network=network) as private:
        await sandbox.files.write("server.py", SERVER)
        server = await sandbox.commands.run("python3 server.py", background=True, timeout=0)
        while not server.stdout:
            await sandbox.commands.list()
        port = int(server.stdout)
        host = sandbox.get_host(port)
        assert host.startswith(f"{port}-{sandbox.sandbox_id}.")
        async with httpx.AsyncClient(base_url=vendor.sandbox_url, trust_env=False) as client:
            by_host = await client.post("/health?a=b", headers={"Host": host}, content=b"text")
            assert (by_host.status_code, by_host.text) == (201, f"/health?a=b {host} text")
            headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)}
            assert (await client.post("/x", headers=headers, content=b"1")).status_code == 201
            closed = await client.get("/", headers=headers | {"E2b-Sandbox-Port": "1"})
            assert closed.json()["message"] == "The sandbox is running but port is not open"
            headers["E2b-Sandbox-Id"] = private.sandbox_id
            assert (await client.post("/", headers=headers)).status_code == 403
            token = private.traffic_access_token
            assert token is not None
            headers["e2b-traffic-access-token"] = token
            assert (await client.post("/", headers=headers)).status_code == 201
            headers["E2b-Sandbox-Id"] = "igone"
            assert (await client.post("/", headers=headers)).status_code == 502


@in_loop
async def test_websockets_reach_ports(vendor: VendorServer) -> None:
    async def echo(request: aiohttp.web.Request) -> aiohttp.web.WebSocketResponse:
        socket = aiohttp.web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(message.data + b"!")
        return socket

    app = aiohttp.web.Application()
    app.router.add_get("/ws", echo)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    try:
        await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with box(vendor) as sandbox, aiohttp.ClientSession() as session:
            headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)}
            url = f"{vendor.sandbox_url}/ws"
            async with session.ws_connect(url, headers=headers) as socket:
                for _ in range(3):
                    await socket.send_bytes(b"hello")
                    assert await socket.receive_bytes() == b"hello!"
    finally:
        await runner.cleanup()
