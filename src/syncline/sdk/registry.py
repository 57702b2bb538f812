"""Which connector serves which provider: given to the engine, or found in installed packages."""

import logging
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from inspect import isclass

from syncline.errors import Invalid
from syncline.sdk.connector import Connector

GROUP = "syncline.connectors"
LOG = logging.getLogger("syncline.connectors")


def connectors_by_provider(
    connectors: Iterable[Connector], *, discover: bool = True
) -> dict[str, Connector]:
    """Return the given connectors, and with `discover` those of installed packages too.

    Where two serve one provider, the given one is used.
    """
    chosen: dict[str, Connector] = {}
    for connector in connectors:
        provider = provider_of(connector)
        if provider in chosen:
            raise Invalid("connectors", f"has two for the provider {provider!r}")
        chosen[provider] = connector
    for connector in announced_connectors() if discover else ():
        chosen.setdefault(provider_of(connector), connector)
    return chosen


def provider_of(connector: Connector) -> str:
    """Return the connector's provider, or raise an error that says what the connector lacks."""
    if isclass(connector):
        raise Invalid(connector.__name__, "is a class; pass an instance of it")
    provider = getattr(connector, "provider", None)
    if not isinstance(provider, str) or not provider:
        raise Invalid(f"{type(connector).__name__}.provider", "must be a non-empty str")
    if not callable(getattr(connector, "sync", None)):
        raise Invalid(type(connector).__name__, "has no sync()")
    return provider


def may_refuse_tenants(connectors: Mapping[str, Connector]) -> dict[str, Connector]:
    """Return the connectors that override `why_not_for_tenants`."""
    ask = Connector.why_not_for_tenants
    return {
        provider: one
        for provider, one in connectors.items()
        if getattr(type(one), "why_not_for_tenants", ask) is not ask
    }


def why_not_for_tenants(connectors: Mapping[str, Connector]) -> dict[str, str]:
    """Return the providers that cannot be confined in this process, and why."""
    found = {}
    for provider, connector in connectors.items():
        ask = getattr(connector, "why_not_for_tenants", None)
        if ask is None:  # not a subclass of Connector
            continue
        try:
            reason = ask()
        except Exception as error:
            reason = f"checking whether it can be confined failed ({type(error).__name__})"
        if reason is not None:
            found[provider] = reason
    return found


def announced_connectors() -> list[Connector]:
    """Return the connectors of installed packages; log and skip those that cannot be loaded."""
    found = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            made = entry.load()()
            connectors = made if isinstance(made, list) else [made]
            for connector in connectors:
                provider_of(connector)
        except Exception as error:
            LOG.warning("connector %s cannot be loaded: %s", entry.name, error)
        else:
            found += connectors
    return found


def connectors_in(module_name: str) -> list[Connector]:
    """Return an instance of each connector that a module defines."""
    module = import_module(module_name)
    found = [
        value
        for value in vars(module).values()
        if isclass(value)
        and issubclass(value, Connector)
        and value.__module__ == module.__name__
        and value.provider
    ]
    return [connector() for connector in dict.fromkeys(found)]  # a class may have two names


def connector_named(name: str) -> Connector:
    """Return an instance of the connector `module:Class`."""
    module_name, _, class_name = name.partition(":")
    if not module_name or not class_name:
        raise Invalid(repr(name), "must be MODULE:CLASS, such as my_connectors:Tickets")
    found = getattr(import_module(module_name), class_name, None)
    if not (isclass(found) and issubclass(found, Connector)):
        raise Invalid(module_name, f"has no connector {class_name}")
    connector = found()
    provider_of(connector)
    return connector
