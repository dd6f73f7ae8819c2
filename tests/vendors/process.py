"""A vendor server as a process of its own, and the test's handle on it.

    with VendorServer.start("daytona", home=tmp_path / "vendor") as vendor:
        monkeypatch.setenv(...)                      # vendor.env leads the SDK here
        vendor.add_fault(Fault("POST /sandbox", "lost"))
        ...
        assert vendor.protocol_errors() == []

The server ends with the process that started it, and its boxes end with the server.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.processes.lifeline import ends_with_us
from vendors.faults import Fault
from vendors.journal import Call
from vendors.server import CONTROL, SECRET_HEADER, SECRET_VARIABLE, Box

TESTS = Path(__file__).parents[1]
END_TIMEOUT_S = 10.0
CONTROL_TIMEOUT_S = 30.0


class VendorServer:
    """Started by ``start``; ended by ``stop`` or at the end of the ``with`` block."""

    def __init__(self, process: subprocess.Popen[str], ready: dict[str, Any]) -> None:
        self._process = process
        self._control_url = ready["url"] + CONTROL
        self._secret = ready["secret"]
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        self.api_url: str = ready["api_url"]
        self.sandbox_url: str = ready["sandbox_url"]
        self.api_key: str = ready["api_key"]
        self.env: dict[str, str] = ready["env"]
        """Environment variables that lead the vendor's SDK to this server."""

    @classmethod
    def start(cls, vendor: str, *, home: Path, port: int = 0, **settings: Any) -> Self:
        """Start a server and wait until it answers.

        Args:
            vendor: ``daytona`` or ``e2b``.
            home: the folder of its boxes' files.
            port: a fixed port, to start a server again where the old one was.
            settings: as for ``configure``.
        """
        process = subprocess.Popen(
            [
                *ends_with_us(),
                *(sys.executable, "-m", f"vendors.{vendor}"),
                *("--home", str(home), "--port", str(port), "--until-eof"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=TESTS,
            env=os.environ | {"PYTHONPATH": str(TESTS), SECRET_VARIABLE: secrets.token_hex(16)},
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.wait(END_TIMEOUT_S)
            raise RuntimeError(f"the server of {vendor} ended before it was ready; see its stderr")
        server = cls(process, json.loads(line))
        if settings:
            server.configure(**settings)
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """End the server and all processes of its boxes."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def journal(self, since: int = 0) -> list[Call]:
        """The calls that arrived, from number ``since`` on."""
        return [Call.from_json(found) for found in self._control("journal", since=since)]

    def protocol_errors(self) -> list[str]:
        """What the server found wrong with requests: unknown fields, missing headers, and so on."""
        found: list[str] = self._control("protocol_errors")
        return found

    def add_fault(self, fault: Fault) -> None:
        self._control("add_fault", **fault.to_json())

    def clear_faults(self) -> None:
        self._control("clear_faults")

    def set_latency(self, seconds: float) -> None:
        """Delay every request, and every message of a stream or websocket, either way. Streams that
        are open already keep their latency.
        """
        self._control("set_latency", seconds=seconds)

    def boxes(self) -> list[Box]:
        """The boxes that the vendor would bill."""
        return [Box(**found) for found in self._control("boxes")]

    def expire(self, box: str) -> None:
        """The box's time runs out now: the vendor kills, pauses or stops it."""
        self._control("expire", box=box)

    def delete(self, box: str) -> None:
        """The box is deleted underneath its owner, as from the vendor's dashboard."""
        self._control("delete", box=box)

    def lose_files(self, box: str, share: float = 0.5) -> None:
        """The next resume of the box loses this share of its files."""
        self._control("lose_files", box=box, share=share)

    def configure(self, **settings: Any) -> None:
        """Change settings of this vendor; its package lists them."""
        self._control("configure", **settings)

    def _control(self, action: str, **arguments: Any) -> Any:
        request = urllib.request.Request(
            f"{self._control_url}/{action}",
            data=json.dumps(arguments).encode(),
            headers={SECRET_HEADER: self._secret, "Content-Type": "application/json"},
        )
        try:
            with self._open(request, timeout=CONTROL_TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise RuntimeError(f"{action} failed: {error.read().decode()}") from None
