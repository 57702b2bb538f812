"""Mask secrets in text that people read: errors, logs, recordings, shown values.

Text is masked before it is cut, because no pattern recognises half a secret. Every pattern is
linear, and none sees more than `LONGEST_TEXT` characters.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"
LONGEST_TEXT = 1_000_000  # characters
MARGIN = 8_192  # characters; longer than any password in a URL
SHORTEST_SECRET = 4  # masking shorter values would garble ordinary words
SHORTEST_ENCODED = 6  # the base64 of less occurs in ordinary words
# Fields of credentials that are not secret; masking a scope named "read" would garble any text.
NOT_SECRET = frozenset({"username", "client_id", "token_url", "token_type", "scope", "expires_at"})
URL_SAFE, STANDARD = str.maketrans("+/", "-_"), str.maketrans("-_", "+/")
ADDRESS = re.compile(r"://\S*+")
ADDRESS_USER = re.compile(r"://[^:/@]*+:")
NAMED_SECRET = re.compile(
    r"""((?:password|passwd|secret|token|api[_-]?key|authorization)["']?\s*+[=:]\s*+)"""
    r"""(?:'[^']*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+"|(?:(?:bearer|basic)\s++)?+[^\s,;&]++)""",
    re.IGNORECASE | re.DOTALL,
)
BASIC = re.compile(r"\b(basic\s++)([a-z0-9+/_-]{4,}+={0,2})", re.IGNORECASE)
API_KEY = re.compile(
    r"\b((?:syncline_(?:operator|tenant)|sl(?:op|te))_[0-9a-f]{12}_)[0-9a-f]{16,}+"
)
SECRET_FIELD = re.compile(
    r'("(?:access_token|refresh_token|id_token|client_secret|password|api_key)"\s*+:\s*+)'
    r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?',
    re.DOTALL,
)


def mask_secrets(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return at most `longest` characters, without passwords in URLs and named secrets."""
    return _masked(text, longest, _mask_patterns, MARGIN)


def strip_addresses(text: str, longest: int = 500) -> str:
    """Return text on one line, with URLs that have no user, no password and no query.

    For messages of programs such as git about the URL they were given.
    """
    words = text[: longest + MARGIN].split()
    if len(text) > longest + MARGIN and words:
        words.pop()  # it may have been cut within a password
    return mask_secrets(" ".join(map(_strip_address, words)), longest)


def mask_fields(text: str) -> str:
    """Return JSON text without the values of fields that are secrets in every API."""
    return SECRET_FIELD.sub(rf'\1"{MASK}"', text)


def secrets_in(value: Any, besides: frozenset[str] = NOT_SECRET) -> set[str]:
    """Return every secret text in credentials, except the fields in `besides`."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        kept = (secrets_in(item, besides) for key, item in value.items() if key not in besides)
        return set().union(_basic(value), *kept)
    if isinstance(value, list | tuple):
        return set().union(*(secrets_in(item, besides) for item in value))
    return set()


def _basic(credentials: Mapping[str, Any]) -> set[str]:
    """Return the base64 of each name and password, as basic authentication sends it."""
    pairs = (("username", "password"), ("client_id", "client_secret"))
    found = (f"{credentials[n]}:{credentials[p]}" for n, p in pairs if {n, p} <= credentials.keys())
    encoded = {base64.b64encode(pair.encode(errors="replace")).decode() for pair in found}
    # Without padding, which may be left out.
    return {form.rstrip("=") for one in encoded for form in (one, one.translate(URL_SAFE))}


class Scrubber:
    """Masks known secrets in text: plain, escaped, and inside base64."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = [secret for secret in secrets if len(secret) >= SHORTEST_SECRET]

    def __call__(self, text: str, longest: int = LONGEST_TEXT) -> str:
        """Return at most `longest` characters, without these and any recognisable secrets."""
        return _masked(text, longest, lambda cut: _mask_patterns(self.known(cut)), self._margin)

    def known(self, text: str) -> str:
        """Return the text without these secrets and otherwise unchanged."""
        for form in self._forms:
            text = text.replace(form, MASK)
        return text

    def finds_any(self, text: str) -> bool:
        return any(form in text for form in self._forms)

    @cached_property
    def _forms(self) -> list[str]:
        # The longest first, because one secret may contain another.
        return sorted({form for s in self._secrets for form in _forms(s)}, key=len, reverse=True)

    @property
    def _margin(self) -> int:
        return max(MARGIN, len(self._forms[0]) if self._forms else 0)


def _masked(text: str, longest: int, mask: Callable[[str], str], margin: int) -> str:
    """Mask enough of the text, then cut it."""
    window = longest + margin
    masked = mask(text[:window])
    while len(masked) < longest + margin and window < min(len(text), LONGEST_TEXT):
        window *= 2  # the masks removed so much that more text is needed
        masked = mask(text[:window])
    if window < len(text):
        # The last characters may be the unrecognised beginning of a secret.
        masked = masked[:-margin]
    return masked[:longest]


def _mask_patterns(text: str) -> str:
    if "://" in text and "@" in text:
        text = ADDRESS.sub(_mask_password, text)
    text = NAMED_SECRET.sub(rf"\1{MASK}", text)
    return API_KEY.sub(rf"\1{MASK}", BASIC.sub(_mask_basic, text))


def _mask_password(address: re.Match[str]) -> str:
    # Up to the last @, because a password may contain one.
    before, at, after = address[0].rpartition("@")
    user = ADDRESS_USER.search(before)
    return f"{before[: user.end()]}{MASK}{at}{after}" if user else address[0]


def _mask_basic(found: re.Match[str]) -> str:
    """Mask what decodes to `user:password`, which the words "basic authentication" do not."""
    standard = found[2].rstrip("=").translate(STANDARD)
    try:
        pair = base64.b64decode(standard + "=" * (-len(standard) % 4)).decode()
    except ValueError:
        return found[0]
    return found[1] + MASK if ":" in pair and pair.isprintable() else found[0]


def _strip_address(word: str) -> str:
    scheme, mark, rest = word.partition("://")
    return scheme.partition("?")[0] if not mark else _bare(scheme + mark, rest)


def _bare(scheme: str, rest: str) -> str:
    # Remove the user first, because a password may contain a question mark.
    return scheme + rest.rpartition("@")[2].partition("?")[0]


def _forms(secret: str) -> set[str]:
    """Return the forms of a secret in a URL, in JSON, in a repr() and in base64."""
    return {
        secret,
        quote(secret, errors="replace"),
        quote(secret, safe="", errors="replace"),
        quote_plus(secret, errors="replace"),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        *_encoded(secret.encode(errors="replace")),
    }


def _encoded(secret: bytes) -> set[str]:
    """Return the base64 of a secret inside a longer text, such as `user:secret`.

    Three bytes become four characters, so there are three alignments. The first and the last
    character are left out if they depend on the surrounding text.
    """
    forms = set()
    for offset, first in ((0, 0), (1, 2), (2, 3)):
        whole = base64.b64encode(b"\0" * offset + secret).decode()
        form = whole[first : 8 * (offset + len(secret)) // 6]
        if len(secret) >= SHORTEST_ENCODED:
            forms |= {form, form.translate(URL_SAFE)}
    return forms
