"""Looking at the whole workspace, in the shell. Names come as data, each ended by a zero byte."""

from __future__ import annotations

WALK = r"""
token=
[ -s "$R/scan" ] && read -r token <"$R/scan"
[ -n "$FULL" ] || [ "$token" = "$SINCE" ] || no ScanOutdated since
cd -P -- "$ROOT" || exit 1
find . -mindepth 1 \( "$@" \) -prune -o \
  \( -type f -o -type d -o -type l \) -exec stat -c "$FORMAT" {} + 2>"$R/walk.$$"
grep -v 'No such file' "$R/walk.$$" >&2
code=$?
rm -f "$R/walk.$$"
[ $code = 1 ] || exit 1
printf '\0'
links \( "$@" \) -prune -o 2>/dev/null
:
"""
"""All files, directories and links, then the targets of links. What was removed meanwhile is no
fault; anything else that could not be seen is."""

DIGESTS = r"""
cd -P -- "$ROOT" && cat >"$R/names.$$" && echo >"$R/clock.$$" || exit 1
stat -c "$FORMAT" "$R/clock.$$"
xargs -0 sha256sum <"$R/names.$$" 2>/dev/null
printf '\0'
xargs -0 stat -c "$FORMAT" <"$R/names.$$" 2>/dev/null
rm -f "$R/names.$$" "$R/clock.$$"
"""
"""The clock (as the facts of a new file), digests, and how the files stand after that."""

CONTENTS = r"""
cd -P -- "$ROOT" && xargs -0 cat 2>/dev/null
:
"""

ONE = r"""
cd -P -- "$ROOT" || exit 1
mode=
if ! [ -r "$P" ]; then mode=$(stat -c %a "$P") && chmod u+r "$P" || exit 1; fi
sha256sum <"$P" && head -c $MOST "$P"
code=$?
[ -z "$mode" ] || chmod $mode "$P"
exit $code
"""
"""A single file, also one that its owner may not read: it is opened for a moment."""

FACTS = r"""
cd -P -- "$ROOT" && cat >"$R/names.$$" || exit 1
sleep $TICK
xargs -0 stat -c "$FORMAT" <"$R/names.$$" 2>/dev/null
rm -f "$R/names.$$"
"""
"""The pause is as long as the clock of files needs to show a later change."""

DONE = r"""
echo "$TOKEN" >"$R/scan.$$" && mv "$R/scan.$$" "$R/scan"
"""
