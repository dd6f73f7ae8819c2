"""Scripts in a box without an agent, by the vendor's way to run a command.

Vendors merge or decode what a command says, and limit its length. So a script travels as base64 in
one line, and its answer as base64 in one line too. Much data goes ahead in pieces.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets

from sandstream_providers.hosted.accounts import NO_ROOT, as_root, no_users
from sandstream_providers.hosted.calls import PATIENCE_S, patiently
from sandstream_providers.hosted.errors import BoxAsleep, NoSuchBox, VendorBusy, VendorSilent
from sandstream_providers.hosted.vendor import Vendor
from sandstream_providers.interface import BoxGone
from sandstream_providers.shell.channel import Answer

_MOST_INLINE = 60 * 1024
"""Bytes of base64 in one command: E2B passes it as one argument, which holds 128 KiB."""
_MARGIN_S = 10.0
_ANSWER = re.compile(r"SANDSTREAM:(\w+):(\d+):([A-Za-z0-9+/=\s]*):([A-Za-z0-9+/=\s]*):END")

_RUN = (
    'T=$(mktemp -d) && {{ {input} | (eval "$(printf %s {script} | base64 -d)") '
    '>"$T/o" 2>"$T/e"; C=$?; printf "%s:{mark}:%s:" SANDSTREAM "$C"; base64 <"$T/o"; printf :; '
    'base64 <"$T/e"; printf ":END\\n"; rm -rf "$T"; }}'
)


class VendorShell:
    """Implements :class:`sandstream_providers.shell.channel.Shell`."""

    def __init__(
        self,
        vendor: Vendor,
        key: str,
        box_id: str,
        *,
        is_root: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Args:
        vendor: Who runs the scripts.
        key: The key of the box, for errors.
        box_id: The vendor's id of the box.
        is_root: Scripts run as root.
        patience_s: How long a busy vendor is asked again.
        """
        self._vendor = vendor
        self._key = key
        self._box_id = box_id
        self._is_root = is_root
        self._patience_s = patience_s

    async def run(self, script: str, data: bytes = b"", *, timeout_s: float = 30.0) -> Answer:
        try:
            return await self.answered(script, data, timeout_s=timeout_s)
        except (NoSuchBox, BoxAsleep) as error:
            raise BoxGone(f"sandbox {self._key} does not run: {error}") from error
        except (VendorSilent, VendorBusy) as error:
            raise ConnectionError(str(error)) from error

    async def answered(self, script: str, data: bytes = b"", *, timeout_s: float = 30.0) -> Answer:
        """The same with the vendor's errors."""
        packed = base64.b64encode(script.encode(errors="surrogateescape")).decode()
        source = base64.b64encode(data).decode()
        if not data:
            given = "true"
        elif len(packed) + len(source) <= _MOST_INLINE:
            given = f"printf %s {source} | base64 -d"
        else:
            path = await self._sent(source, timeout_s)
            given = f"{{ cat {path}/* | base64 -d; rm -rf {path}; }}"
        if len(packed) > _MOST_INLINE:
            path = await self._sent(packed, timeout_s)
            inner = f'eval "$(cat {path}/* | base64 -d)"; rm -rf {path}'
            packed = base64.b64encode(inner.encode()).decode()
        mark = secrets.token_hex(8)
        said = await self._executed(
            _RUN.format(input=given, script=packed, mark=mark), timeout_s + _MARGIN_S
        )
        return _answer(said, mark)

    async def close(self) -> None:
        """Nothing is held between two scripts."""

    async def _sent(self, text: str, timeout_s: float) -> str:
        """Put a long text into files of a directory of the box, whose names are in order. A piece
        that is sent again does no harm.
        """
        path = f"/tmp/.sandstream-{secrets.token_hex(8)}"
        for start in range(0, len(text), _MOST_INLINE):
            piece = text[start : start + _MOST_INLINE]
            put = f"mkdir -p {path} && printf %s {piece} >{path}/{start:012}"
            said = await self._executed(f"{put} && echo SENT", timeout_s)
            if "SENT" not in said:
                raise VendorSilent("the sandbox did not take a piece of a file")
        return path

    async def _executed(self, command: str, timeout_s: float) -> str:
        if self._is_root:
            command = as_root(command)
        said = await patiently(
            lambda: self._vendor.execute(
                self._box_id, command, timeout_s=timeout_s, as_root=self._is_root
            ),
            again=False,
            patience_s=self._patience_s,
        )
        if self._is_root and NO_ROOT in said:
            raise no_users()
        return said


def _answer(said: str, mark: str) -> Answer:
    for found in _ANSWER.finditer(said):
        if found.group(1) == mark:
            try:
                out, err = (base64.b64decode(found.group(it)) for it in (3, 4))
            except binascii.Error as error:
                raise VendorSilent(f"an answer arrived damaged: {error}") from error
            return Answer(code=int(found.group(2)), stdout=out, stderr=err)
    raise VendorSilent(f"the sandbox's answer is cut: {said[-200:]!r}")
