"""nats-py's client, mended where it breaks or is slow. The only place that overrides its inside."""

from __future__ import annotations

from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg


class MendedClient(NatsClient):
    """Does not die of a subject that is not UTF-8: anybody may publish one. And parses headers
    quicker: nats-py's own way took a tenth of a turn's CPU.
    """

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        readable = subject.decode("utf-8", "replace").encode()
        message: Msg = super()._build_message(sid, readable, reply, data, headers)
        return message

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        parsed: dict[str, str] = {}
        for line in raw.decode("utf-8", "replace").split("\r\n"):
            name, colon, value = line.partition(":")
            if colon:
                parsed[name] = value.strip()
        return parsed
