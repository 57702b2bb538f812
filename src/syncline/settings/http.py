"""The settings of the connectors' HTTP client."""

from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from syncline.settings.checks import Component, split_names

ProviderSlugs = Annotated[list[str], NoDecode, BeforeValidator(split_names)]


class HttpSettings(Component):
    """How connectors make HTTP requests."""

    allow_private: ProviderSlugs = Field(
        default_factory=list,
        description="Providers that may be called at private addresses; `*` means all.",
    )
    timeout_seconds: float = Field(
        60, gt=0, le=3600, description="Longest request, including redirects and body."
    )
    connect_timeout_seconds: float = Field(
        10, gt=0, le=300, description="Longest wait for a connection."
    )
    max_response_bytes: int = Field(
        64_000_000, ge=1, description="Largest response body, decompressed."
    )
    max_json_values: int = Field(1_000_000, ge=1, description="Most values in a JSON response.")
    connections_per_origin: int = Field(
        64, ge=1, le=10_000, description="Most connections to one origin; further requests wait."
    )
    max_redirects: int = Field(5, ge=0, le=5, description="Redirects that a request follows.")

    def allows_private(self, provider_slug: str) -> bool:
        return provider_slug in self.allow_private or "*" in self.allow_private
