"""Bodies of messages: real ones, changed ones, and bytes that are no message at all."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
BIG_BYTES = 200 * 1024
"""Above what a message carries inline."""
HUGE_BYTES = 900 * 1024
"""Just below what the server takes."""


class Body(NamedTuple):
    """What is sent, and what it is called in the report."""

    kind: str
    data: bytes


def _deep(rng: Random) -> bytes:
    depth = rng.choice((200, 2_000, 60_000))
    return rng.choice((b"[" * depth, b'{"a":' * depth, b"[" * depth + b"]" * depth))


def _random(rng: Random) -> bytes:
    return rng.randbytes(rng.choice((1, 7, 64, 500)))


def _missing_claim(rng: Random) -> bytes:
    claim = {"type": "claim", "of": "run.done", "digest": rng.randbytes(32).hex(), "size_bytes": 9}
    return json.dumps(claim).encode()


def _odd_claim(rng: Random) -> bytes:
    digest = rng.choice(("", "*", ">", "../../etc/passwd", "x" * 5000, "ab.cd", "\u0000"))
    return json.dumps({"type": "claim", "of": "x", "digest": digest, "size_bytes": -1}).encode()


BROKEN: dict[str, Callable[[Random], bytes]] = {
    "empty": lambda _: b"",
    "blank": lambda _: b" \n\t",
    "cut": lambda _: b'{"type":"cancel.requ',
    "random": _random,
    "not UTF-8": lambda _: b'{"type":"cancel.requested","reason":"\xff\xfe\x80"}',
    "no object": lambda rng: rng.choice((b"null", b"[]", b"0", b'"x"', b"true", b"[{}]")),
    "no type": lambda _: b"{}",
    "wrong tag": lambda rng: rng.choice((b'{"type":"moon.landed"}', b'{"type":7}')),
    "NaN": lambda rng: rng.choice((b'{"type":NaN}', b"NaN", b'{"type":"run.done","turns":NaN}')),
    "huge number": lambda _: b'{"type":"turn.requested","turn":1' + b"0" * 400 + b"}",
    "deep": _deep,
    "lone surrogate": lambda _: b'{"type":"cancel.requested","reason":"\\ud800"}',
    "NUL": lambda _: b'{"type":"cancel\\u0000requested"}',
    "big": lambda _: b"x" * BIG_BYTES,
    "huge": lambda _: b"\0" * HUGE_BYTES,
    "acknowledgement": lambda _: b'{"stream":"SANDSTREAM_LOG","seq":12,"duplicate":true}',
    "missing claim": _missing_claim,
    "odd claim": _odd_claim,
}
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**31, 2**63, -(2**63), 2**64, 1e308, 0.5, "", "*", ">", "a.b"),
    *("=", "x" * 300, "x" * 20_000, "\u0000", "\r\nNats-Msg-Id: x", "../..", "é\u202e\U0001f600"),
    *([], {}, [[]], [None], {"": ""}, {"type": "claim"}, ["x"] * 500),
)


class Bodies:
    """The golden messages by their tag, and what can be made of them."""

    def __init__(self) -> None:
        self._texts = {it.stem: it.read_bytes() for it in sorted(GOLDEN.glob("*.json"))}
        self.names = sorted(self._texts)
        self._of: dict[tuple[str, ...], list[str]] = {}

    def of(self, tags: tuple[str, ...]) -> list[str]:
        """The golden files of these messages."""
        if tags not in self._of:
            starts = tuple(f"{tag}." for tag in tags)
            exact = [it for it in self.names if it in tags or it.startswith(starts)]
            self._of[tags] = exact or self.names
        return self._of[tags]

    def golden(self, name: str) -> bytes:
        return self._texts[name]

    def changed(self, rng: Random, name: str) -> bytes:
        """A golden message with one to three of its parts changed."""
        message = json.loads(self._texts[name])
        for _ in range(rng.randint(1, 3)):
            _change(rng, message)
        return json.dumps(message, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")

    def flipped(self, rng: Random, name: str) -> bytes:
        """A golden message with some of its bytes changed, gone or doubled."""
        data = bytearray(self._texts[name])
        for _ in range(rng.randint(1, 8)):
            place = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    data[place] = rng.randrange(256)
                case 1 if len(data) > 2:
                    del data[place]
                case _:
                    data.insert(place, data[place])
        return bytes(data)


def broken(rng: Random) -> Body:
    """No message of ours."""
    # the dear ones are rare: what is tested is what happens to them, not the machine's disk
    weights = [0.05 if kind in ("big", "huge", "deep") else 1.0 for kind in BROKEN]
    kind = rng.choices(list(BROKEN), weights)[0]
    return Body(kind, BROKEN[kind](rng))


def _change(rng: Random, message: Any) -> None:
    """Change a part somewhere inside."""
    while True:
        keys: list[Any] = list(message) if isinstance(message, dict) else list(range(len(message)))
        if not keys:
            return
        key = rng.choice(keys)
        inside = message[key]
        if isinstance(inside, dict | list) and inside and rng.random() < 0.6:
            message = inside
            continue
        match rng.randrange(4):
            case 0:
                del message[key]
            case 1 if isinstance(message, dict):
                message[rng.choice(("type", "call", "run", "zz", "x" * 200))] = message.pop(key)
            case _:
                message[key] = copy.deepcopy(rng.choice(_VALUES))
        return
