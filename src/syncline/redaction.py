"""Takes secrets out of text that people will read: errors, logs, recordings, shown values.

Text is masked first and cut then: half a secret is no longer recognised. Every pattern is linear,
and no text is longer than `LONGEST_TEXT` when a pattern sees it.
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
MARGIN = 8_192  # characters: longer than any password in an address
SHORTEST_SECRET = 4  # shorter values would blank out ordinary words
SHORTEST_ENCODED = 6  # the base64 of less would be found in ordinary words
# What credentials hold beside secrets; to blank out a scope named "read" would garble every text.
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
    """Return at most `longest` characters, without passwords in addresses and named secrets."""
    return _masked(text, longest, _mask_patterns, MARGIN)


def strip_addresses(text: str, longest: int = 500) -> str:
    """Return text on one line whose addresses have no user, no password and no query.

    For what programs such as git say about the address they were given.
    """
    words = text[: longest + MARGIN].split()
    if len(text) > longest + MARGIN and words:
        words.pop()  # it was cut, perhaps within a password
    return mask_secrets(" ".join(map(_strip_address, words)), longest)


def mask_fields(text: str) -> str:
    """Return JSON text without the values of fields that are secrets in every API."""
    return SECRET_FIELD.sub(rf'\1"{MASK}"', text)


def secrets_in(value: Any, besides: frozenset[str] = NOT_SECRET) -> set[str]:
    """Return every text of credentials that may not be shown; fields in `besides` may."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, Mapping):
        kept = (secrets_in(item, besides) for key, item in value.items() if key not in besides)
        return set().union(_basic(value), *kept)
    if isinstance(value, list | tuple):
        return set().union(*(secrets_in(item, besides) for item in value))
    return set()


def _basic(credentials: Mapping[str, Any]) -> set[str]:
    """Return what basic authentication makes of a name and a password."""
    pairs = (("username", "password"), ("client_id", "client_secret"))
    found = (f"{credentials[n]}:{credentials[p]}" for n, p in pairs if {n, p} <= credentials.keys())
    encoded = {base64.b64encode(pair.encode(errors="replace")).decode() for pair in found}
    # Without the padding: it may be left out, and tells nothing.
    return {form.rstrip("=") for one in encoded for form in (one, one.translate(URL_SAFE))}


class Scrubber:
    """Takes known secrets out of text: as they are, escaped, and inside of base64."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = [secret for secret in secrets if len(secret) >= SHORTEST_SECRET]

    def __call__(self, text: str, longest: int = LONGEST_TEXT) -> str:
        """Return at most `longest` characters, without these secrets and any that can be seen."""
        return _masked(text, longest, lambda cut: _mask_patterns(self.known(cut)), self._margin)

    def known(self, text: str) -> str:
        """Return the text without these secrets, and otherwise as it is."""
        for form in self._forms:
            text = text.replace(form, MASK)
        return text

    def finds_any(self, text: str) -> bool:
        return any(form in text for form in self._forms)

    @cached_property
    def _forms(self) -> list[str]:
        # The longest first: one secret may hold another.
        return sorted({form for s in self._secrets for form in _forms(s)}, key=len, reverse=True)

    @property
    def _margin(self) -> int:
        return max(MARGIN, len(self._forms[0]) if self._forms else 0)


def _masked(text: str, longest: int, mask: Callable[[str], str], margin: int) -> str:
    """Mask as much of the text as it takes, and then cut."""
    window = longest + margin
    masked = mask(text[:window])
    while len(masked) < longest + margin and window < min(len(text), LONGEST_TEXT):
        window *= 2  # the masks took so much away that more has to be read
        masked = mask(text[:window])
    if window < len(text):
        # The last characters may be the beginning of a secret, which nothing recognises.
        masked = masked[:-margin]
    return masked[:longest]


def _mask_patterns(text: str) -> str:
    if "://" in text and "@" in text:
        text = ADDRESS.sub(_mask_password, text)
    text = NAMED_SECRET.sub(rf"\1{MASK}", text)
    return API_KEY.sub(rf"\1{MASK}", BASIC.sub(_mask_basic, text))


def _mask_password(address: re.Match[str]) -> str:
    # Up to the last @: a password that holds one itself must not leave its tail behind.
    before, at, after = address[0].rpartition("@")
    user = ADDRESS_USER.search(before)
    return f"{before[: user.end()]}{MASK}{at}{after}" if user else address[0]


def _mask_basic(found: re.Match[str]) -> str:
    """Mask what decodes to `user:password`; "basic authentication" does not."""
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
    # The user goes first: a password may hold a question mark.
    return scheme + rest.rpartition("@")[2].partition("?")[0]


def _forms(secret: str) -> set[str]:
    """Return a secret as it may stand in an address, in JSON, in a representation, in base64."""
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
    """Return the base64 of a secret within any longer text, such as `user:secret`.

    Three bytes become four characters, so there are three ways to stand. The first and the last
    character are left out where they depend on what stands around the secret.
    """
    forms = set()
    for offset, first in ((0, 0), (1, 2), (2, 3)):
        whole = base64.b64encode(b"\0" * offset + secret).decode()
        form = whole[first : 8 * (offset + len(secret)) // 6]
        if len(secret) >= SHORTEST_ENCODED:
            forms |= {form, form.translate(URL_SAFE)}
    return forms
