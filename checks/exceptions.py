"""The exceptions: by rule, what may break it and why. A rule with many exceptions is wrong."""

MOST_EXCEPTIONS = 5

EXCEPTIONS: dict[str, dict[str, str]] = {
    "a function has at most 5 parameters": {
        "services/connections.py:Connections.create": "the library's keyword arguments are public",
        "services/connections.py:Connections.ensure": "the library's keyword arguments are public",
    },
    "no file is named by an -ing": {
        "keyring.py": "a ring of keys is a thing",
    },
}
