"""Patches as models write them: literal cases as other implementations of the format give them."""

from __future__ import annotations

from typing import Any

import pytest
from sandstream_actors.sandbox.tools.patch_errors import PatchDiffError, PatchPathError
from sandstream_actors.sandbox.tools.patch_parse import parse_patch

CASES: list[tuple[str, tuple[str, Any]]] = [
    (
        "*** Begin Patch\n*** Add File: a.txt\n+x\n+\n*** End Patch",
        ("operations", [("create_file", "a.txt", "+x\n+\n", "")]),
    ),
    (
        "*** Begin Patch\n*** Add File:   sp ace.txt \n+x\n*** End Patch\n",
        ("operations", [("create_file", "sp ace.txt", "+x\n", "")]),
    ),
    (
        "*** Begin Patch\n*** Delete File: a\n*** Update File: b\n*** Move to: c\n"
        "@@\n-x\n+y\n*** End of File\n*** End Patch",
        (
            "operations",
            [
                ("delete_file", "a", "", ""),
                ("update_file", "b", "@@\n-x\n+y\n*** End of File\n", "c"),
            ],
        ),
    ),
    (
        "*** Begin Patch\r\n*** Update File: b\r\n@@ f\r\n x\r\n*** End Patch\r\n",
        ("operations", [("update_file", "b", "@@ f\n x\n", "")]),
    ),
    ("", ("error", "apply_patch input must start with '*** Begin Patch'")),
    ("*** End Patch", ("error", "apply_patch input must start with '*** Begin Patch'")),
    ("*** Begin Patch\n", ("error", "apply_patch input must end with '*** End Patch'")),
    (
        "*** Begin Patch\n*** End Patch",
        ("error", "apply_patch input must include at least one file operation"),
    ),
    (
        "x\n*** Begin Patch\n*** End Patch",
        ("error", "apply_patch input must start with '*** Begin Patch'"),
    ),
    (
        "*** Begin Patch\njunk\n*** End Patch",
        ("error", "Invalid apply_patch file operation header: junk"),
    ),
    (
        "*** Begin Patch\n*** Add File: a\n*** End Patch",
        ("error", "Add File patch for a must include at least one + line"),
    ),
    ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch", ("error", "Invalid Add File line: x")),
    (
        "*** Begin Patch\n*** Add File: \n+x\n*** End Patch",
        ("error", "Missing path in apply_patch header: *** Add File: "),
    ),
    (
        "*** Begin Patch\n*** Delete File: a\n+x\n*** End Patch",
        ("error", "Delete File patch for a must not include a diff"),
    ),
    (
        "*** Begin Patch\n*** Update File: a\n*** End Patch",
        ("error", "Update File patch for a must include a hunk"),
    ),
    (
        "*** Begin Patch\n*** Update File: a\n*** Move to: b\n*** End Patch",
        ("error", "Update File patch for a must include a hunk"),
    ),
    (
        "*** Begin Patch\n*** Update File: a\n*** Move to: \n x\n*** End Patch",
        ("error", "Missing path in apply_patch header: *** Move to: "),
    ),
    (
        "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch\n\n",
        ("error", "apply_patch input must end with '*** End Patch'"),
    ),
    (
        "*** Begin Patch\n*** Add File: a\n+x\u2028y\n*** End Patch",
        ("operations", [("create_file", "a", "+x\u2028y\n", "")]),
    ),
    (
        '{"type":"create_file","path":"a","diff":"+x"}',
        ("operations", [("create_file", "a", "+x", "")]),
    ),
    (
        '{"operation":{"type":"update_file","path":"a","diff":"-x","move_to":"b"}}',
        ("operations", [("update_file", "a", "-x", "b")]),
    ),
    (
        '{"operations":[{"type":"delete_file","path":"a","diff":"zz"},{"type":"create_file","path":"b","diff":""}]}',
        ("operations", [("delete_file", "a", "", ""), ("create_file", "b", "", "")]),
    ),
    ('[{"type":"delete_file","path":"a"}]', ("operations", [("delete_file", "a", "", "")])),
    ('{"type":"rename","path":"a"}', ("error", "Invalid apply_patch operation type: rename")),
    ('{"type":"create_file","path":""}', ("error", "apply_patch operation is missing a path")),
    (
        '{"type":"create_file","path":"a"}',
        ("error", "apply_patch operation create_file is missing a diff"),
    ),
    (
        '{"type":"update_file","path":"a","diff":"x","move_to":3}',
        ("error", "apply_patch operation move_to must be a string"),
    ),
    ('["x"]', ("error", "apply_patch operation must be an object")),
    ("[]", ("operations", [])),
    ("{", ("error", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)")),
]


@pytest.mark.parametrize(("patch", "expected"), CASES)
def test_parse(patch: str, expected: tuple[str, Any]) -> None:
    kind, value = expected
    if kind == "operations":
        found = [(each.kind, each.path, each.diff, each.move_to) for each in parse_patch(patch)]
        assert found == value
        return
    with pytest.raises(PatchDiffError) as caught:
        parse_patch(patch)
    assert str(caught.value) == value


def test_a_move_to_nowhere_is_a_path_error() -> None:
    with pytest.raises(PatchPathError) as caught:
        parse_patch('{"type": "update_file", "path": "a", "diff": "", "move_to": ""}')
    assert str(caught.value) == "apply_patch path must be non-empty"
    assert caught.value.context == {"path": "", "reason": "empty"}
