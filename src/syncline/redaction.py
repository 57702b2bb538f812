"""Takes secrets out of text that people will read."""

import re

# Greedy up to the last @: a password that holds one itself must not leave its tail behind.
URL_PASSWORD = re.compile(r"(://[^\s:/@]*:)\S*@")
NAMED_SECRET = re.compile(
    r"""((?:password|passwd|secret|token|api[_-]?key|authorization)["']?\s*[=:]\s*)"""
    r"""(?:'[^']*'|"[^"]*"|(?:(?:bearer|basic)\s+)?[^\s,;&]+)""",
    re.IGNORECASE,
)
API_KEY = re.compile(r"\b(sl(?:op|te)_[0-9a-f]{12}_)[0-9a-f]{16,}")
MASK = r"\1***"


def mask_secrets(text: str) -> str:
    """Return the text without passwords in addresses and without values named like secrets."""
    return API_KEY.sub(MASK, NAMED_SECRET.sub(MASK, URL_PASSWORD.sub(MASK + "@", text)))
