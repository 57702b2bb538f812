"""The server's own timeouts, which count virtual time here.

What a session asks for is read from what it sends, and switched off on its way to the server, whose
time is real: on a slow machine a seed would otherwise live another life.
"""

import re
from struct import pack, unpack_from

LOCK, IDLE = "lock_timeout", "idle_in_transaction_session_timeout"
# As the first message of a session has them, and as SET LOCAL does.
# A statement takes no virtual time but for its locks, so its timeout is only switched off.
WRITTEN = re.compile(
    rb"(lock_timeout|idle_in_transaction_session_timeout|statement_timeout)(\0| = )(\d+)"
)
SET_CONFIG = re.compile(r"set_config\('(lock_timeout|idle_in_transaction_session_timeout)', \$1")


class Timeouts:
    """How long a session waits for locks, and may stand idle inside a transaction."""

    def __init__(self) -> None:
        self._of_session: dict[str, float] = {}
        self._of_transaction: dict[str, float] = {}

    def seconds(self, name: str) -> float | None:
        """Return a timeout; None where there is none."""
        return self._of_transaction.get(name, self._of_session.get(name)) or None

    def take_from_startup(self, data: bytes) -> bytes:
        return self._take(data, self._of_session)

    def take_from_script(self, data: bytes) -> bytes:
        """Take what a script sets for its transaction, and forget what one before it had."""
        self._of_transaction.clear()
        return self._take(data, self._of_transaction)

    def take_from_call(self, name: str, body: bytes, data: bytes) -> bytes:
        """Take the value that a call of set_config binds."""
        value = _first_parameter(body)
        self._of_transaction[name] = int(value) / 1000
        length = pack("!I", len(value))
        return data.replace(length + value, length + b"0" * len(value))

    def _take(self, data: bytes, into: dict[str, float]) -> bytes:
        def switch_off(found: re.Match[bytes]) -> bytes:
            into[found[1].decode()] = int(found[3]) / 1000
            return found[1] + found[2] + b"0" * len(found[3])

        return WRITTEN.sub(switch_off, data)


def _first_parameter(body: bytes) -> bytes:
    """Return the first value of a message that binds values to a statement."""
    values = body.split(b"\0", 2)[2]
    formats = unpack_from("!H", values)[0]
    start = 4 + 2 * formats
    length = unpack_from("!I", values, start)[0]
    return values[start + 4 : start + 4 + length]
