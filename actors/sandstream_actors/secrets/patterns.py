"""Patterns of secrets, and how to mask them in text.

Known forms of keys are masked everywhere; other values only where a name (``password=…``) or a
place (the user part of a URL) marks them. Everything else stays byte for byte.

The text is untrusted, so the work must grow only linearly with its length: each pattern either has
no unbounded repetition before the point where it can fail, or uses possessive repetition.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

MASK = "[redacted]"

_START = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"
"""Not inside a word; an escaped line break before it is not part of a word."""
_END = r"(?![A-Za-z0-9_-])"

STRONG_NAMES = (
    r"pass(?:words?|wd|phrases?)"
    r"|(?:api|secret|access|private|signing|encryption|account)[_-]?key"
    r"|secret[_-]?access[_-]?key"
    r"|client[_-]?secret"
    r"|(?:access|refresh|auth|id|session|security|bearer|api|bot)[_-]?token"
    r"|credentials?"
)
WEAK_NAMES = r"token|secret|pwd|(?:x-amz-)?signature|sig"
"""Ambiguous names: only long values are treated as secrets."""
_SHORTEST_WEAK = 8
_SECRET_NAME = re.compile(
    rf"(?:^|.*[^A-Za-z])(?:{STRONG_NAMES})(?:_[A-Z0-9]{{1,16}})?", re.I | re.S
)
_SECRET_CAMEL_NAME = re.compile(
    r"\w*(?:Password|Passphrase|(?:Api|Secret|Access|Private)Key|ClientSecret|(?:Access|Auth)Token)"
)
_WEAK_NAME = re.compile(rf"(?:^|.*[^A-Za-z])(?:{WEAK_NAMES})", re.I | re.S)
_NAME_ANCHORS = ("pass", "pwd", "key", "secret", "token", "credential", "sig")
_HARMLESS = r"(?:none|null|nil|true|false|undefined|str|string|bytes|int|optional|required)\b"
_NO_VALUE = rf"(?!{_HARMLESS}|\$[A-Z_a-z{{(]|<|{{|os\.|env\.|process\.|\*{{3}}|\[redacted|…)"
_IS_VALUE = re.compile(_NO_VALUE, re.I)
_ESCAPES = r"\\{0,63}"
"""Backslashes before a quote in nested JSON text, up to six levels."""
_SEPARATOR = rf"{_ESCAPES}[\"']?\s{{0,8}}(?:=>|:=|[:=])\s{{0,8}}"
_PLAIN = (
    r"(?:[^\s\"'`&<>\\,;(){}\[\]|]"
    r"|[,;(){}\[\]|](?![\s,;(){}\[\]|\"'`\\]|$|[\w.-]{1,40}[=:]))"
)
"""A character of an unquoted value. Punctuation counts if the value continues after it."""


class _Pattern(NamedTuple):
    anchors: tuple[str, ...]
    """Every match contains one of these lower-case texts: a cheap test before the regex."""
    regex: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str] = MASK
    needs: str = ""
    """Every match also contains this text."""


def _key(prefix: str, rest: str, *anchors: str) -> _Pattern:
    """A key of a recognisable form that begins with ``prefix``."""
    pattern = re.compile(f"{_START}(?:{prefix}){rest}{_END}")
    return _Pattern(anchors or (prefix.lower(),), pattern)


_SUFFIX = r"(?-i:_[A-Z0-9]{1,16})?"
_QUOTE = rf"(?P<quote>{_ESCAPES}[\"'])"
_IN_QUOTES = r"(?:(?!(?P=quote))[^\\\r\n]|(?!(?P=quote))\\.)*+"


_SCHEMA_KEYS = r"type|\$ref|anyOf|oneOf|allOf|enum|const|format|title|description"
"""Keys of a schema: under the name of a secret, they describe one and hold none."""
_TEXT = rf"(?P=inner){_IN_QUOTES.replace('quote', 'inner')}(?P=inner)"
_CONTAINER = (
    rf"(?:\[|{{(?!\s{{0,64}}{_ESCAPES}[\"'](?-i:{_SCHEMA_KEYS}){_ESCAPES}[\"']))"
    rf"(?=\s{{0,64}}(?P<inner>{_ESCAPES}[\"'])(?!\[redacted))"
    rf"(?:(?:{_TEXT}|[^\[\]{{}}]|[\[{{](?:{_TEXT}|[^\[\]{{}}])*+[\]}}])*+(?P<end>[\]}}])|[^\r\n]++)"
)
"""A list or object that begins with a text. A truncated one extends to the end of its line."""
_BLOCK = (
    r"(?P<block>[|>][+-]?[0-9]?[ \t]{0,8}\r?\n(?P<indent>[ \t]{1,64}))(?!\[redacted)[^\s][^\r\n]*+"
    r"(?:\r?\n(?P=indent)[^\r\n]*+)*+"
)
"""A YAML block: lines that are indented like the first one."""


def _named(
    name: str,
    shortest: int,
    *,
    plain: str = _PLAIN,
    no_value: str = _NO_VALUE,
    talk: str = "",
    needs: str = "",
) -> _Pattern:
    """A name and its value: quoted, after an unclosed quote, unquoted, or in brackets. Text that
    matches ``talk`` is not an unquoted value.
    """
    several = rf"|{_CONTAINER}|{_BLOCK}" if shortest == 1 else r"|(?!)(?P<inner>)(?P<block>)"
    regex = re.compile(
        rf"(?P<name>{name})"
        rf"(?:{_QUOTE}(?:(?P<quoted>{_IN_QUOTES})(?P=quote)|(?P<cut>{no_value}[^\r\n]++))"
        rf"|{talk}{no_value}{plain}{{{shortest},}}+{several})",
        re.I,
    )
    is_value = re.compile(no_value, re.I)

    def masked(match: re.Match[str]) -> str:
        quote, quoted = match["quote"], match["quoted"]
        if match["inner"] is not None:
            quote = match["inner"]
            return f"{match['name']}{quote}{MASK}{quote if match['end'] else ''}"
        if quote is None:
            return f"{match['name']}{match['block'] or ''}{MASK}"
        if quoted is None:
            return f"{match['name']}{quote}{MASK}"
        if len(quoted) < shortest or is_value.match(quoted) is None:
            return match[0]
        return f"{match['name']}{quote}{MASK}{quote}"

    return _Pattern(_NAME_ANCHORS, regex, masked, needs)


def _assignment(names: str, shortest: int) -> _Pattern:
    return _named(f"(?:{names}){_SUFFIX}{_SEPARATOR}", shortest)


_NEXT = rf"(?:[ \t]{{1,8}}|{_ESCAPES}[\"']\s{{0,8}},\s{{0,64}}(?={_ESCAPES}[\"']))"
"""Between an option and its value: in a command, or in a list of texts."""
_OPTION = r"(?<![\w-])--(?:[A-Za-z0-9]{1,32}-){0,4}"
_OPTION_NAMES = (
    r"pass(?:word|wd|phrase)|(?:api|secret|access|account)-?key|secret-access-key|client-?secret"
    r"|(?:access|refresh|auth|id|session|security|bearer|api|bot)-?token"
)
_OPTION_KEY_NAMES = r"(?:private|signing|encryption)-?key"
_OPTION_WEAK_NAMES = "token|secret|pwd"
_TALK = (
    r"(?!(?-i:[A-Z_]+\b)|(?:option|flag|argument|parameter|switch|value|prompt|is|was|to|and|or|for|with"
    r"|if|in|on|from|as|has|must|should|can|may|not|the|a|an)\b)"
)
"""Words that follow an option in a help text or a sentence."""
_NO_ARGUMENT = rf"(?!-){_NO_VALUE}"
_NO_FILE = r"(?![~./]|[^\s\"']{0,256}[/.])"
_ARGUMENT = r"[^\s\"'`\\;|&<>()]"


def _option(names: str, shortest: int, no_value: str = _NO_ARGUMENT) -> _Pattern:
    name = f"{_OPTION}(?:{names}){_NEXT}"
    return _named(name, shortest, plain=_ARGUMENT, no_value=no_value, talk=_TALK, needs="--")


def _labelled() -> _Pattern:
    """``"name": "DB_PASSWORD", "value": …``, in JSON or YAML."""
    quote = rf"{_ESCAPES}[\"']?"
    name = (
        rf"\b(?:name|key){quote}\s{{0,8}}:\s{{0,8}}{quote}[\w.-]{{0,64}}?(?:{STRONG_NAMES}){_SUFFIX}{quote}"
        rf"\s{{0,64}},?\s{{0,64}}{quote}value{quote}\s{{0,8}}:\s{{0,8}}"
    )
    return _named(name, 1, needs="value")


_SEED_LENGTH = 58
_SEED = re.compile(
    rf"S[UANOCX][A-Z2-7]{{56}}{_END}(?:(?<![A-Za-z0-9_-].{{58}})|(?<=\\[nrt].{{58}}))", re.S
)
"""The seed of a NATS key. It has no distinctive prefix, so the pattern begins with a letter and
looks back from its end, which is much faster.
"""
_SHORTEST_KEY = 20
_KEY_PATTERNS = (
    _Pattern(
        ("private key",),
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:[^-]|-(?!----))*+"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
        ),
    ),
    _key("sk-", r"(?=[A-Za-z_-]{0,256}+[0-9])[A-Za-z0-9_-]{20,}+"),
    _key(r"[sr]k_(?:live|test)_", r"[A-Za-z0-9]{16,}+", "_live_", "_test_"),
    _key("whsec_", r"[A-Za-z0-9+/=]{16,}+"),
    _key("AKIA|ASIA|ABIA|ACCA", r"[0-9A-Z]{16}", "akia", "asia", "abia", "acca"),
    _key("gh[pousr]_", r"[A-Za-z0-9]{36,}+", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _key("github_pat_", r"[A-Za-z0-9_]{22,}+"),
    _key("glpat-", r"[A-Za-z0-9_-]{20,}+"),
    _key("xox[abeoprs]-|xapp-", r"[A-Za-z0-9-]{10,}+", "xox", "xapp-"),
    _Pattern(
        ("hooks.slack.com/",),
        re.compile(r"(hooks\.slack\.com/(?:services|workflows|triggers)/)[A-Za-z0-9/_-]++"),
        rf"\1{MASK}",
    ),
    _key("AIza", r"[A-Za-z0-9_-]{35}"),
    _key(r"ya29\.", r"[A-Za-z0-9._-]{20,}+", "ya29."),
    _key("GOCSPX-", r"[A-Za-z0-9_-]{20,}+"),
    _key("hf_", r"[A-Za-z0-9]{30,}+"),
    _key("npm_", r"[A-Za-z0-9]{36}"),
    _key("pypi-", r"[A-Za-z0-9_-]{50,}+"),
    _key("dtn_|e2b_", r"[0-9a-f]{32,}+", "dtn_", "e2b_"),
    _key("eyJ", r"[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]*+"),
)
"""Keys that are recognisable by their form."""
_SHORT_PATTERNS = (
    _Pattern(
        ("authorization",),
        re.compile(
            rf"(authorization{_SEPARATOR}{_ESCAPES}[\"']?(?:(?:bearer|basic|token|digest|apikey)\s{{1,8}})?+)"
            rf"{_NO_VALUE}[^\s\"'\\]++",
            re.I,
        ),
        rf"\1{MASK}",
    ),
    _Pattern(
        ("bearer",),
        re.compile(
            r"\b(bearer\s{1,8})(?=[A-Za-z._~+/=-]{0,256}+[0-9])[A-Za-z0-9._~+/=-]{16,}+", re.I
        ),
        rf"\1{MASK}",
    ),
    _Pattern(
        ("basic",),
        re.compile(r"\b(basic\s{1,8})(?=[A-Za-z+/]{0,256}+[0-9=])[A-Za-z0-9+/]{12,}+={0,2}", re.I),
        rf"\1{MASK}",
    ),
    _Pattern(
        ("cookie",),
        re.compile(
            rf"\b((?:set-)?cookie{_ESCAPES}[\"']?\s{{0,8}}[:=]\s{{0,8}}{_ESCAPES}[\"']?)"
            r"(?=[^\s=;:\"'\\]{1,256}+=)[^\r\n\"'\\]++",
            re.I,
        ),
        rf"\1{MASK}",
    ),
    _Pattern(
        ("://",),
        re.compile(r"(://[^\s/@:\"'\\]{0,256}+:)(?!\[redacted)[^\s/\"'\\]{1,512}(?=@)"),
        rf"\1{MASK}",
    ),
    _Pattern(
        ("://",),
        re.compile(r"(://)(?=[^\s/@:\"'\\0-9]{0,256}+[0-9])[^\s/@:\"'\\]{16,512}+(?=@)"),
        rf"\1{MASK}",
    ),
    _labelled(),
    _assignment(STRONG_NAMES, 1),
    _assignment(rf"(?<![A-Za-z])(?:{WEAK_NAMES})", _SHORTEST_WEAK),
    _option(_OPTION_NAMES, 1),
    _option(_OPTION_KEY_NAMES, 1, _NO_ARGUMENT + _NO_FILE),
    _option(_OPTION_WEAK_NAMES, _SHORTEST_WEAK),
)
"""Values that are recognisable by their place, however short."""
_LONG_PATTERNS = (*_KEY_PATTERNS, *_SHORT_PATTERNS)


def scrub(text: str) -> str:
    """The text with everything masked that looks like a secret."""
    if len(text) > _OFTEN_SEEN:
        return _scrubbed(text)
    return _scrubbed_before(text)


def _scrubbed(text: str) -> str:
    lower = text.lower()
    for pattern in _LONG_PATTERNS if len(text) >= _SHORTEST_KEY else _SHORT_PATTERNS:
        for anchor in pattern.anchors:  # plain loops: this is the hot path
            if anchor in lower:
                if pattern.needs in lower:
                    text = pattern.regex.sub(pattern.replacement, text)
                break
    return text if len(text) < _SEED_LENGTH else _SEED.sub(MASK, text)


_ALL_ANCHORS = tuple({anchor for pattern in _LONG_PATTERNS for anchor in pattern.anchors})


def is_surely_clean(text: str) -> bool:
    """A quick check of many joined texts: true if none of them can contain a secret."""
    lower = text.lower()
    for anchor in _ALL_ANCHORS:
        if anchor in lower:
            return False
    return _SEED.search(text) is None


_OFTEN_SEEN = 200
"""Attribute names and values are short and mostly repeat, so results up to here are cached."""
_scrubbed_before = functools.lru_cache(maxsize=8192)(_scrubbed)


def names_a_secret(name: str, value: str) -> bool:
    """Whether the name marks this value as a secret."""
    if len(name) > _OFTEN_SEEN or not value:
        return False
    if _COOKIE_NAME.fullmatch(name):
        return "=" in value and value != MASK
    shortest = shortest_secret(name)
    return 0 < shortest <= len(value) and _IS_VALUE.match(value) is not None


def hides_the_next(argument: str, value: str) -> bool:
    """Whether ``value`` is a secret because it follows this command argument."""
    return argument.startswith("--") and scrub(f'{argument}", "{value[:_OFTEN_SEEN]}"').endswith(
        f'"{MASK}"'
    )


_COOKIE_NAME = re.compile(r"(?:.*[^A-Za-z])?(?:set[_-])?cookie", re.I | re.S)
_HEADER_NAME = re.compile(r"(?:proxy-)?authorization", re.I)


@functools.lru_cache(maxsize=8192)
def shortest_secret(name: str) -> int:
    """The minimum length of a secret with this name; 0 if the name marks no secret."""
    if len(name) > _OFTEN_SEEN:
        return 0
    for pattern in (_SECRET_NAME, _SECRET_CAMEL_NAME, _HEADER_NAME):
        if pattern.fullmatch(name):
            return 1
    return _SHORTEST_WEAK if _WEAK_NAME.fullmatch(name) else 0
