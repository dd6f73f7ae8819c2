"""The tests of the pages do only what a reader sees."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.doc_blocks import Page, read_page
from docs.doc_runner import PageFailed, PageRunner

from sandstream.testing import ScriptedModel

FENCE = "```"


def _page(text: str) -> Page:
    return read_page(Path("page.md"), text.replace("'''", FENCE))


def _run(page: Page, directory: Path) -> None:
    with ScriptedModel() as model, PageRunner(page, directory, model) as runner:
        runner.run()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("<!-- sh:\nexport A=1\n-->\n'''sh\necho $A\n'''\n", "no mark"),
        ("<!-- model:\nscript_for('x', [])\n-->\n\nText.\n", "marks no block"),
        ("<!-- doctest: skip=why -->\n\nText.\n\n'''sh\nls\n'''\n", "no mark"),
        ("<!-- doctest: name=a.py -->\n'''python\n1\n'''\n", "does not name the file `a.py`"),
        ("Go:\n\n<!-- doctest: background=up -->\n'''sh\nls\n'''\n", "another terminal"),
        ("<!-- doctest: patiently -->\n'''sh\nls\n'''\n", "cannot have the mark patiently"),
        ("<!-- doctest: output -->\n'''sh\nls\n'''\n", "cannot have the mark output"),
    ],
)
def test_what_a_reader_does_not_see_is_a_fault(text: str, fault: str) -> None:
    (found,) = _page(text).faults
    assert fault in found


def test_comments_are_not_run(tmp_path: Path) -> None:
    _run(_page("<!-- sh:\ntouch hidden\n-->\n'''sh\ntouch seen\n'''\n"), tmp_path)
    assert (tmp_path / "page" / "seen").exists()
    assert not (tmp_path / "page" / "hidden").exists()


def test_another_terminal_does_not_have_what_was_exported_in_the_first(tmp_path: Path) -> None:
    text = (
        "'''sh\nexport A=1\n'''\n"
        "In another terminal:\n"
        "<!-- doctest: background='A is unset' -->\n'''sh\necho A is ${A:-unset}\nsleep 60\n'''\n"
        "'''sh\necho A is $A\n'''\n"
        "<!-- doctest: output -->\n'''text\nA is 1\n'''\n"
    ).replace("'A is unset'", '"A is unset"')
    page = _page(text)
    assert page.faults == []
    _run(page, tmp_path)


def test_a_patient_reader_repeats_a_command_until_it_prints_what_the_page_shows(
    tmp_path: Path,
) -> None:
    text = (
        "<!-- doctest: patient -->\n'''sh\necho again >> tries\ntest $(wc -l < tries) -gt 1\n"
        "wc -l < tries\n'''\n<!-- doctest: output -->\n'''text\n3\n'''\n"
    )
    _run(_page(text), tmp_path)


def test_an_impatient_reader_does_not(tmp_path: Path) -> None:
    text = "'''sh\necho again >> tries\ntest $(wc -l < tries) -gt 1\n'''\n"
    with pytest.raises(PageFailed, match="exit code 1"):
        _run(_page(text), tmp_path)
