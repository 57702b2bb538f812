"""The exceptions: by rule, what may break it and why. A rule with many exceptions is wrong."""

MOST_EXCEPTIONS = 5

EXCEPTIONS: dict[str, dict[str, str]] = {
    "no file is named by an -ing": {
        "keyring.py": "a ring of keys is a thing",
    },
}
