"""A box has its socket in its own directory, however long the path of the state directory is."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from providers.local.local_boxes import local_provider, new_spec, record_of, said
from sandstream_providers.local import sockets
from sandstream_providers.local.records import Layout


@pytest.mark.parametrize("length", [60, 70, 90, 200])
def test_a_box_answers_and_leaves_nothing_outside_of_its_home(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(home: Path) -> None:
        async with local_provider(home) as provider:
            spec = new_spec()
            box = await provider.create(spec)
            assert await said(box, "echo fine") == "fine\n"
            assert Path(record_of(home, spec.key).socket).is_relative_to(home)

    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        monkeypatch.setattr(tempfile, "tempdir", base)
        home = Path(base) / ("h" * (length - len(base) - 1))
        asyncio.run(main(home))
        assert [it.name for it in Path(base).iterdir()] == [home.name]


@pytest.mark.parametrize("length", [30, 41, 50, 60, 90])
def test_a_path_is_short_enough_where_it_has_to_be(
    length: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on other systems than Linux."""
    monkeypatch.setattr(sockets, "LINUX", False)
    base = tmp_path / ("d" * length)
    base.mkdir()
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    path = Layout(base / "a-home-with-a-long-name-of-its-own").new_socket("ss-" + "k" * 26)
    assert len(str(path)) <= 107
    if path.parent.name.startswith("sandstream-"):
        path.parent.rmdir()
