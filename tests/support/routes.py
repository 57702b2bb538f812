"""Every route of the application and its parameters; new routes are found automatically."""

from collections.abc import Iterable, Iterator

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from syncline import Engine
from syncline.api.app import create_app


def routes_of(engine: Engine) -> list[APIRoute]:
    found = list(walk(create_app(engine).routes))
    assert len(found) > 25
    return found


def walk(found: Iterable[BaseRoute]) -> Iterator[APIRoute]:
    """Yield every route; fail on a kind of route that is unknown here."""
    for route in found:
        if isinstance(route, Route):
            assert isinstance(route, APIRoute), f"{route.path}: what does it take?"
            yield route
        elif isinstance(route, Mount):
            assert isinstance(route.app, StaticFiles), f"{route.path}: what does it serve?"
        else:
            yield from walk(route.original_router.routes)  # type: ignore[attr-defined]


def methods_of(route: Route) -> set[str]:
    return set(route.methods or ()) - {"HEAD"}


def query_names(route: APIRoute) -> list[str]:
    """Return the parameters of a route's query, also those that a model holds together."""
    names: list[str] = []
    for one in _flat(route.dependant):
        for field in one.query_params:
            annotation = field.field_info.annotation
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                names += annotation.model_fields
            else:
                names.append(field.alias)
    return names


def body_names(route: APIRoute) -> list[str]:
    """Return the fields of a route's form, or the one body that it takes."""
    return [field.alias for one in _flat(route.dependant) for field in one.body_params]


def _flat(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for one in dependant.dependencies:
        yield from _flat(one)
