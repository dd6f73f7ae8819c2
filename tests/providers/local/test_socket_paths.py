"""A socket's path has at most 107 bytes, wherever the state directory and the temporary one are."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from sandstream_providers.local.records import Layout


@pytest.mark.parametrize("length", [30, 41, 50, 60, 90])
def test_it_is_short_enough(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    base = Path(tempfile.mkdtemp(dir="/tmp", prefix="d" * (length - len("/tmp/12345678"))))
    assert len(str(base)) == length
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    try:
        path = Layout(base / "a-home-with-a-long-name-of-its-own").new_socket("ss-" + "k" * 26)
        assert len(str(path)) <= 107
        assert path.parent.is_dir() or path.parent.is_relative_to(base)
    finally:
        shutil.rmtree(base)
        if path.parent.name.startswith("sandstream-") and path.parent.is_dir():
            path.parent.rmdir()
