"""Bad days: no engine, a bad one, a bad image, a foreign container. Each says what to do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import docker
import pytest
from providers.docker.docker_boxes import (
    OWNER,
    busybox_file,
    docker_provider,
    image_of,
    inspect,
    is_there,
    new_spec,
)
from providers.local.local_boxes import said
from sandstream_providers.docker.doctor import examine
from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.errors import EngineSilent, ForeignContainer, ImageUnusable
from sandstream_providers.docker.facts import ask
from sandstream_providers.docker.labels import BOX, container_name
from sandstream_providers.docker.labels import OWNER as OWNER_LABEL
from sandstream_providers.interface import Limits, ProviderError, ProviderUnavailable
from sandstream_providers.registry import ProviderSettings, Question
from support.engines import engine


async def _asked(url: str, call_s: float = 10.0) -> None:
    place = Engine(url, call_s=call_s)
    try:
        await ask(place)
    finally:
        await place.close()


# --- the engine -----------------------------------------------------------------------------------


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(ProviderUnavailable, match=r"pip install 'sandstream\[docker\]'"):
        asyncio.run(_asked("unix:///nowhere"))


@pytest.mark.parametrize("url", ["unix://{}/docker.sock", "tcp://no-such.invalid:2375"])
def test_no_engine(tmp_path: Path, url: str) -> None:
    place = url.format(tmp_path)
    with pytest.raises(ProviderUnavailable) as caught:
        asyncio.run(_asked(place))
    assert f"no Docker engine answers at {place};" in str(caught.value)
    assert "DOCKER_HOST" in str(caught.value)


def test_no_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    with pytest.raises(ProviderUnavailable, match="set DOCKER_CERT_PATH to the directory with ca"):
        asyncio.run(_asked("tcp://127.0.0.1:9"))


def test_doctor_says_what_is_there(tmp_path: Path) -> None:
    def found(url: str) -> tuple[str, str]:
        settings = ProviderSettings(home=tmp_path, endpoint=url)
        first = asyncio.run(examine(Question(settings=settings)))[0]
        return first.state, first.found + first.todo

    state, text = found(f"unix://{tmp_path}/docker.sock")
    assert state == "warning" and "no Docker engine answers" in text
    state, text = found(engine.ensure())
    assert state == "ok" and "API 1." in text


def test_doctor_does_not_warn_where_docker_was_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = tmp_path / "docker.sock"
    monkeypatch.setattr("sandstream_providers.docker.engine.USUAL", f"unix://{usual}")
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    question = Question(settings=ProviderSettings(home=tmp_path))

    def found() -> tuple[str, str]:
        (only,) = asyncio.run(examine(question))
        return only.state, only.todo

    assert found() == ("ok", "")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(usual))
    state, todo = found()
    assert state == "warning" and f"no Docker engine answers at unix://{usual};" in todo
    usual.unlink()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{usual}")
    assert found()[0] == "warning"
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setitem(sys.modules, "docker", None)
    assert found() == ("ok", "")


AS_ANOTHER = """
import asyncio, docker, os, sys
from sandstream_providers.docker.engine import Engine
from sandstream_providers.docker.facts import ask
os.setgroups([]), os.setgid(12345), os.setuid(12345)
try:
    asyncio.run(ask(Engine(sys.argv[1])))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_no_permission_on_the_socket() -> None:
    argv = [sys.executable, "-c", AS_ANOTHER, engine.ensure()]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert "ProviderUnavailable" in done.stdout, done
    assert "no permission" in done.stdout and "usermod -aG docker" in done.stdout


@contextlib.contextmanager
def _serving(answer: bytes) -> Iterator[str]:
    """Something that is not a good engine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_engine_that_is_too_old() -> None:
    old = b'{"ApiVersion": "1.39", "MinAPIVersion": "1.12"}'
    with _serving(old) as url, pytest.raises(ProviderUnavailable, match=r"too old.*1\.39"):
        asyncio.run(_asked(url))


def test_something_else_answers() -> None:
    with _serving(b"welcome to nginx") as url, pytest.raises(ProviderUnavailable):
        asyncio.run(_asked(url))


def test_an_engine_that_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = "tcp://{}:{}".format(*listener.getsockname())
        with pytest.raises(EngineSilent, match="did not answer within") as caught:
            asyncio.run(_asked(url, call_s=0.3))
        assert caught.value.retryable


# --- images ---------------------------------------------------------------------------------------


def _refused(home: Path, error: type[ProviderError], image: str, **fields: Any) -> ProviderError:
    """No box can be made, and nothing is left behind."""

    async def story() -> ProviderError:
        async with docker_provider(home) as provider:
            spec = new_spec(image, **fields)
            with pytest.raises(error) as caught:
                await provider.create(spec)
            assert await provider.get(spec.key) is None
            assert not is_there(spec.key)
            assert not (home / "docker" / spec.key).exists()
            return caught.value

    return asyncio.run(story())


def test_an_image_that_is_nowhere(tmp_path: Path) -> None:
    error = _refused(tmp_path, ImageUnusable, "127.0.0.1:9/sandstream/none:1")
    assert "cannot be pulled" in str(error) and "docker pull" in str(error)


def test_a_name_that_no_image_can_have(tmp_path: Path) -> None:
    error = _refused(tmp_path, ImageUnusable, "Not A Name")
    assert error.data["reason"] == "name" and "'Not A Name' is not the name" in str(error)


def test_an_image_without_a_shell(tmp_path: Path) -> None:
    with image_of({"app": b"just a file"}) as image:
        error = _refused(tmp_path, ImageUnusable, image)
    assert error.data["reason"] == "no_shell" and "/bin/sh" in str(error)


def test_an_image_for_another_machine(tmp_path: Path) -> None:
    program = bytearray(busybox_file())
    program[18:20] = (0xF3).to_bytes(2, "little")  # for RISC-V, says its header
    with image_of({"bin/sh": bytes(program)}) as image:
        error = _refused(tmp_path, ImageUnusable, image)
    assert error.data["reason"] == "platform"


def test_an_image_with_a_broken_python(tmp_path: Path) -> None:
    files: dict[str, bytes | str] = {
        "bin/busybox": busybox_file(),
        "bin/sh": "busybox",
        "bin/python3": b"#!/bin/sh\necho no such library >&2\nexit 1\n",
    }
    with image_of(files, "ENV PATH=/bin") as image:
        error = _refused(tmp_path, ImageUnusable, image)
        assert error.data["reason"] == "python"
        assert "no such library" in str(error) and "agent=False" in str(error)


def test_an_image_whose_entry_point_ends_at_once(tmp_path: Path) -> None:
    """It does not matter: a box has a first process of its own."""

    async def story(image: str) -> None:
        async with docker_provider(tmp_path) as provider:
            box = await provider.create(new_spec(image))
            assert await said(box, "echo fine") == "fine\n"

    names = (
        "sh",
        "sleep",
        "mkdir",
        "cat",
        "dd",
        "mv",
        "rm",
        "ls",
        "base64",
        "setsid",
        "head",
        "tail",
    )
    others = ("wc", "tr", "od", "sed", "grep", "find", "stat", "kill", "ln", "printf", "tar")
    files: dict[str, bytes | str] = dict.fromkeys(
        (f"bin/{it}" for it in (*names, *others)), "busybox"
    )
    with image_of({"bin/busybox": busybox_file(), **files}, 'ENTRYPOINT ["false"]') as image:
        asyncio.run(story(image))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"image": ""}, "needs an image"),
        ({"imgae": "x"}, "no option 'imgae'"),
        ({"read_only": "yes"}, "is wrong"),
        ({"runtime": "none-such"}, "no runtime 'none-such'"),
        ({"labels": {"io.sandstream.owner": "me"}}, "cannot begin with"),
    ],
)
def test_options_that_are_wrong(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    assert text in str(_refused(tmp_path, ProviderError, engine.PYTHON, options=options))


# --- other containers -----------------------------------------------------------------------------


@contextlib.contextmanager
def _container(name: str, labels: dict[str, str]) -> Iterator[None]:
    """One that somebody else has made."""
    client = docker.APIClient(base_url=engine.ensure())
    made = client.create_container(engine.BUSYBOX, command=["true"], name=name, labels=labels)
    try:
        yield
    finally:
        client.remove_container(made["Id"], force=True)
        client.close()


def test_a_foreign_container_has_the_name(tmp_path: Path) -> None:
    spec = new_spec()
    with _container(container_name(spec.key), {"somebody": "else"}):

        async def story() -> None:
            async with docker_provider(tmp_path) as provider:
                with pytest.raises(ForeignContainer) as caught:
                    await provider.create(spec)
                assert container_name(spec.key) in str(caught.value)
                assert await provider.get(spec.key) is None
                await provider.delete(spec.key)
                assert is_there(spec.key), "it is not ours to remove"

        asyncio.run(story())


def test_forged_labels_fool_nobody(tmp_path: Path) -> None:
    forged = [
        ("forged-one", {OWNER_LABEL: OWNER, BOX: "box"}),
        ("sandstream-forged-two", {OWNER_LABEL: OWNER, BOX: "../../etc"}),
        ("sandstream-forged-three", {OWNER_LABEL: OWNER}),
        ("sandstream-forged.four", {OWNER_LABEL: OWNER, BOX: "another"}),
    ]
    with contextlib.ExitStack() as stack:
        for name, labels in forged:
            stack.enter_context(_container(name, labels))

        async def story() -> None:
            async with docker_provider(tmp_path) as provider:
                assert await provider.list_owned(OWNER) == []
                for name, _ in forged:
                    key = name.removeprefix("sandstream-")
                    assert await provider.get(key) is None
                    await provider.delete(key)
                    assert engine.ask(engine.ensure(), f"/containers/{name}/json")["Id"]

        asyncio.run(story())


def test_limits_above_those_of_the_engine(tmp_path: Path) -> None:
    async def story() -> None:
        limits = Limits(cpus=10_000, memory_mb=1 << 30, processes=1 << 22, file_mb=1 << 30)
        async with docker_provider(tmp_path) as provider:
            box = await provider.create(new_spec(limits=limits))
            assert await said(box, "echo fine") == "fine\n"
            spec = new_spec(limits=Limits(memory_mb=1))
            await provider.create(spec)
            assert inspect(spec.key)["HostConfig"]["Memory"] > 6 << 20

    asyncio.run(story())
