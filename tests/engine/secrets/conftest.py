from typing import Any

import pytest

from syncline.keyring import new_key

KEY = new_key("k1")


@pytest.fixture
def engine_settings(engine_settings: dict[str, Any]) -> dict[str, Any]:
    """The world's engine has a key, and may call this machine."""
    return {"secret_keys": KEY, "http": {"allow_private": ["*"]}, **engine_settings}
