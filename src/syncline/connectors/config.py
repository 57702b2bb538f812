"""Read a connection's config into a model, with an error that names the wrong field."""

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from syncline.errors import Permanent


class Configuration(BaseModel):
    """The base of connectors' configurations; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


C = TypeVar("C", bound=Configuration)


def read_configuration(model: type[C], config: Any) -> C:
    """Return the configuration, or raise `Permanent` with the first wrong field."""
    try:
        return model.model_validate(config or {})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(["config", *map(str, first["loc"])])
        raise Permanent(f"{where}: {first['msg']}") from None
