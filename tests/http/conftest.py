from collections.abc import Callable
from typing import Any

import pytest

from syncline.http import HttpClient, HttpEnvironment


@pytest.fixture
def local() -> Callable[..., HttpClient]:
    """Make a client that may call servers on this machine."""

    def make(url: str | None = None, **options: Any) -> HttpClient:
        limits = options.pop("limits", {})
        environment = options.pop("environment", HttpEnvironment(allow_private=True))
        return HttpClient(environment.with_limits(**limits), base_url=url, **options)

    return make
