"""Whether a key is valid, and when to warn that it expires."""

from datetime import datetime, timedelta

from syncline.model import ApiKey, KeyStatus

NOTICE = timedelta(days=14)


def key_status(key: ApiKey, now: datetime) -> KeyStatus:
    """Return the key's status; an `expiring` key is valid and ends soon."""
    if key.revoked_at is not None:
        return KeyStatus.REVOKED
    if key.expires_at is None:
        return KeyStatus.ACTIVE
    if key.expires_at <= now:
        return KeyStatus.EXPIRED
    # A key made for a day must not warn from its first minute.
    notice = min(NOTICE, (key.expires_at - key.created_at) / 2)
    return KeyStatus.EXPIRING if key.expires_at - now <= notice else KeyStatus.ACTIVE
