"""Which connector serves which provider: those handed over, and those that packages announce."""

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
    """Return whom a connector serves, or raise an error that says what it lacks."""
    if isclass(connector):
        raise Invalid(connector.__name__, "is a class; pass an instance of it")
    provider = getattr(connector, "provider", None)
    if not isinstance(provider, str) or not provider:
        raise Invalid(f"{type(connector).__name__}.provider", "is not a non-empty text")
    if not callable(getattr(connector, "sync", None)):
        raise Invalid(type(connector).__name__, "has no sync()")
    return provider


def may_refuse_tenants(connectors: Mapping[str, Connector]) -> dict[str, Connector]:
    """Return the connectors that have reasons of their own; the others need not be asked."""
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
        if ask is None:  # a class of its own that only looks like a connector
            continue
        try:
            reason = ask()
        except Exception as error:
            reason = f"whether it can be confined is not known ({type(error).__name__})"
        if reason is not None:
            found[provider] = reason
    return found


def announced_connectors() -> list[Connector]:
    """Return what installed packages announce; one that cannot be loaded is told and left out."""
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
    return [connector() for connector in dict.fromkeys(found)]  # one may have two names


def connector_named(name: str) -> Connector:
    """Return an instance of the connector that `module:Class` names."""
    module_name, _, class_name = name.partition(":")
    if not module_name or not class_name:
        raise Invalid(repr(name), "must be MODULE:CLASS, such as my_connectors:Tickets")
    found = getattr(import_module(module_name), class_name, None)
    if not (isclass(found) and issubclass(found, Connector)):
        raise Invalid(module_name, f"has no connector {class_name}")
    connector = found()
    provider_of(connector)
    return connector
