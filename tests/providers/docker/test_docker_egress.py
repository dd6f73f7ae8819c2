"""A box that reaches listed hosts through its proxy, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from providers.docker.docker_boxes import OWNER, docker_provider, inspect, is_there, new_spec
from providers.local.local_boxes import said, sh
from sandstream_providers.box.agent.network.proxy import Denied, _request
from support.engines import engine


class Greeter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"welcome to {self.path}, {self.headers.get('Proxy-Connection')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


@pytest.fixture(scope="module")
def outside() -> Iterator[str]:
    """A server that containers with a network can reach: host:port."""
    network = engine.ask(engine.ensure(), "/networks/bridge")
    server = ThreadingHTTPServer((network["IPAM"]["Config"][0]["Gateway"], 0), Greeter)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"{server.server_address[0]!s}:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_only_listed_hosts_are_reached(tmp_path: Path, outside: str) -> None:
    async def story() -> None:
        async with docker_provider(tmp_path) as provider:
            listed = [outside, "ip6-localhost", "*.example.com"]
            spec = new_spec(options={"egress": listed})
            box = await provider.create(spec)
            get = "curl -sS --max-time 10"
            assert await said(box, f"{get} http://{outside}/x?y=1") == "welcome to /x?y=1, None"
            tunnel = await said(box, f"{get} --proxytunnel http://{outside}/t")
            assert tunnel == "welcome to /t, None"
            host, _, port = outside.partition(":")
            for refused in (f"{host}:1", "192.0.2.1", f"nobody.net:{port}", "ip6-localhost"):
                answer = await said(box, f"{get} -w '%{{http_code}}' http://{refused}/")
                assert answer.endswith("403"), answer
            # what does not ask the proxy has no network at all
            direct = await sh(box, f"{get} --noproxy '*' http://{outside}/")
            assert direct.exit_code == 7
            assert await said(box, "ls /sys/class/net") == "lo\n"
            assert inspect(spec.key)["HostConfig"]["NetworkMode"] == "none"
            # the proxy is no box of its own, and goes where its box goes
            assert [it.key for it in await provider.list_owned(OWNER)] == [spec.key]
            await provider.stop(spec.key)
            assert not inspect(f"{spec.key}.proxy")["State"]["Running"]
            again = await provider.get(spec.key)
            assert again is not None
            assert "welcome" in await said(again, f"{get} http://{outside}/")
            await provider.delete(spec.key)
            assert not is_there(f"{spec.key}.proxy")

    asyncio.run(story())


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"GET ftp://example.com/ HTTP/1.1\r\n\r\n",
        b"CONNECT :443 HTTP/1.1\r\n\r\n",
        b"CONNECT example.com:99999999 HTTP/1.1\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
def test_requests_that_name_no_host(head: bytes) -> None:
    with pytest.raises(Denied):
        _request(head)
