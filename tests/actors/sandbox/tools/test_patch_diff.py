"""Diffs on texts: literal cases as other implementations of the format give them."""

from __future__ import annotations

import pytest
from sandstream_actors.sandbox.tools.patch_diff import created_text, updated_text
from sandstream_actors.sandbox.tools.patch_errors import PatchDiffError

UPDATES = [
    ("replace a line", "a\nb\nc\n", "@@\n a\n-b\n+B\n c\n", ("text", "a\nB\nc\n")),
    ("no header for the first hunk", "a\nb\n", " a\n+x\n b\n", ("text", "a\nx\nb\n")),
    (
        "second hunk needs a header",
        "a\nb\nc\n",
        "@@\n-a\n+A\n*** End of File\n-c\n+C\n",
        ("error", "Invalid Line:\n-c"),
    ),
    ("insert at the start", "a\nb\n", "@@\n+new\n a\n", ("text", "new\na\nb\n")),
    ("only additions go to the start", "a\nb\n", "@@\n+new\n", ("text", "new\na\nb\n")),
    (
        "anchor",
        "def f():\n    x\ndef g():\n    x\n",
        "@@ def g():\n-    x\n+    y\n",
        ("text", "def f():\n    x\ndef g():\n    y\n"),
    ),
    (
        "anchor by trimmed text",
        "class A:\n    def f():\n        x\n",
        "@@ def f():\n-        x\n+        y\n",
        ("text", "class A:\n    def f():\n        y\n"),
    ),
    ("unknown single anchor is ignored", "a\nb\n", "@@ nowhere\n-b\n+B\n", ("text", "a\nB\n")),
    (
        "stacked anchors",
        "class A:\n    def f():\n        x\nclass B:\n    def f():\n        x\n",
        "@@ class B:\n@@     def f():\n-        x\n+        y\n",
        ("text", "class A:\n    def f():\n        x\nclass B:\n    def f():\n        y\n"),
    ),
    (
        "stacked anchors must all match",
        "class A:\n    def f():\n        x\n",
        "@@ class A:\n@@     def g():\n-        x\n+        y\n",
        ("error", "Invalid Anchor 1:\n    def g():"),
    ),
    ("trailing white space", "a  \nb\t\nc\n", " a\n-b\n+B\n", ("text", "a  \nB\nc\n")),
    ("surrounding white space", "  a\n    b\n c\n", "@@\n a\n-b\n+B\n", ("text", "  a\nB\n c\n")),
    ("exact match before a loose one", " a\na\n", "@@\n-a\n+A\n", ("text", " a\nA\n")),
    ("wrong context", "a\nb\n", "@@\n x\n-b\n+B\n", ("error", "Invalid Context 0:\nx\nb")),
    (
        "end of file picks the last",
        "x\ny\nx\ny\n",
        "@@\n-y\n+z\n*** End of File\n",
        ("text", "x\ny\nx\nz\n"),
    ),
    ("append at the end of file", "a\nb\n", "@@\n b\n+c\n*** End of File\n", ("text", "a\nb\nc\n")),
    (
        "only additions at the end of file",
        "a\nb\n",
        "@@\n+c\n*** End of File\n",
        ("text", "a\nb\nc\n"),
    ),
    (
        "end of file falls back to elsewhere",
        "a\nb\nc\n",
        "@@\n-b\n+B\n*** End of File\n",
        ("text", "a\nB\nc\n"),
    ),
    (
        "wrong context at the end of file",
        "a\nb\n",
        "@@\n-z\n+B\n*** End of File\n",
        ("error", "Invalid EOF Context 0:\nz"),
    ),
    ("file without a line end", "a\nb", "@@\n-b\n+B\n", ("text", "a\nB")),
    ("CRLF stays", "a\r\nb\r\nc\r\n", "@@\n a\n-b\n+B\n c\n", ("text", "a\r\nB\r\nc\r\n")),
    ("CRLF in the diff only", "a\nb\n", "@@\r\n-b\r\n+B\r\n", ("text", "a\nB\n")),
    ("one line takes line ends from the diff", "a", "@@\r\n-a\r\n+b\r\n+c\r\n", ("text", "b\r\nc")),
    ("mixed line ends become one kind", "a\r\nb\nc", "@@\n-c\n+C\n", ("text", "a\r\nb\r\nC")),
    ("empty line as context", "a\n\nb\n", "@@\n a\n\n-b\n+B\n", ("text", "a\n\nB\n")),
    ("empty file", "", "@@\n+a\n", ("text", "a\n")),
    (
        "two hunks",
        "a\nb\nc\nd\ne\n",
        "@@\n-a\n+A\n b\n@@\n d\n-e\n+E\n",
        ("text", "A\nb\nc\nd\nE\n"),
    ),
    (
        "hunks in the wrong order",
        "a\nb\nc\n",
        "@@\n-c\n+C\n@@\n-a\n+A\n",
        ("error", "Invalid Context 3:\na"),
    ),
    (
        "several edits in one hunk",
        "a\nb\nc\nd\n",
        "@@\n-a\n+A\n b\n-c\n d\n+e\n",
        ("text", "A\nb\nd\ne\n"),
    ),
    ("removal and addition mixed", "a\nb\nc\n", "@@\n-a\n+x\n-b\n c\n", ("text", "x\nc\n")),
    ("empty hunk", "a\n", "@@\n", ("error", "Nothing in this section - index=1 *** End Patch")),
    ("empty diff", "a\n", "", ("text", "a\n")),
    ("line without a sign", "a\n", "@@\na\n", ("error", "Invalid Line: a")),
    ("stray marker", "a\n", "@@\n a\n*** Nonsense\n", ("error", "Invalid Line: *** Nonsense")),
    ("three stars end a hunk", "a\nb\n", "@@\n-a\n+A\n***\n", ("error", "Invalid Line:\n***")),
    (
        "header without a space",
        "a\nb\n",
        "@@x\n-a\n",
        ("error", "Nothing in this section - index=0 @@x"),
    ),
    (
        "stops at the next file",
        "a\nb\n",
        "@@\n-a\n+A\n*** Update File: other\n@@\n-q\n",
        ("text", "A\nb\n"),
    ),
    (
        "overlapping hunks at the end",
        "a\nb\n",
        "@@\n-a\n-b\n+c\n@@\n-b\n*** End of File\n",
        ("error", "applyDiff: overlapping chunk at 1 (cursor 2)"),
    ),
    (
        "unicode line separators are content",
        "a\u2028b\nc\n",
        "@@\n-a\u2028b\n+d\n",
        ("text", "d\nc\n"),
    ),
]
CREATIONS = [
    ("+a\n+b\n", ("text", "a\nb")),
    ("+a\r\n+b\r\n", ("text", "a\r\nb")),
    ("", ("text", "")),
    ("+\n", ("text", "")),
    ("+a\n+\n", ("text", "a\n")),
    ("a\n", ("error", "Invalid Add File Line: a")),
    ("+a\n*** End Patch\n", ("text", "a")),
    ("++x", ("text", "+x")),
]


@pytest.mark.parametrize(
    ("text", "diff", "expected"), [case[1:] for case in UPDATES], ids=[case[0] for case in UPDATES]
)
def test_update(text: str, diff: str, expected: tuple[str, str]) -> None:
    kind, value = expected
    if kind == "text":
        assert updated_text(text, diff) == value
        return
    with pytest.raises(PatchDiffError) as caught:
        updated_text(text, diff)
    assert str(caught.value) == value


@pytest.mark.parametrize(("diff", "expected"), CREATIONS)
def test_create(diff: str, expected: tuple[str, str]) -> None:
    kind, value = expected
    if kind == "text":
        assert created_text(diff) == value
        return
    with pytest.raises(PatchDiffError) as caught:
        created_text(diff)
    assert str(caught.value) == value
