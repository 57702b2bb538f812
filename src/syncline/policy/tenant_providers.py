"""Which providers a tenant's key may connect."""

from collections.abc import Collection
from dataclasses import dataclass

SETTING = "api.tenant_providers"


@dataclass(frozen=True, slots=True)
class ProviderFacts:
    """Facts about a provider's connector; `cannot_confine` is why it is unsafe for tenants."""

    is_known: bool
    is_local: bool = False
    cannot_confine: str | None = None


def why_refused(provider: str, facts: ProviderFacts, named: Collection[str] | None) -> str | None:
    """Return why a tenant's key may not connect a provider, or None if it may.

    An unknown provider could be anything, so it is refused unless an operator named it.
    """
    refused = f"tenants' keys may not connect the provider {provider!r}"
    if facts.cannot_confine is not None:
        return f"{refused}: {facts.cannot_confine}; {SETTING} cannot allow it"
    if named is not None:
        return None if provider in named else f"{refused}: {SETTING} does not name it"
    if not facts.is_known:
        return f"{refused}: no connector here serves it; an operator can name it in {SETTING}"
    if facts.is_local:
        return (
            f"{refused}: its connector runs a program or reads its host; "
            f"an operator can name it in {SETTING}"
        )
    return None
