"""Read a connection's config into a model, with an error that names the wrong field."""

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from syncline.errors import Permanent


class Configuration(BaseModel):
    """The base of connectors' configurations; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


C = TypeVar("C", bound=Configuration)
LONGEST_REMEMBERED = 4_096  # characters


class ConfigurationReader(Generic[C]):
    """Reads configurations, and remembers the last ones: every run of a connection has the same."""

    def __init__(self, model: type[C], remembered: int = 1_000) -> None:
        self._model, self._remembered = model, remembered
        self._known: dict[str, C] = {}

    def read(self, config: Any) -> C:
        """Return the configuration, or raise `Permanent` with the first wrong field."""
        key = repr(config)  # unlike ==, it tells 1 from true
        found = self._known.get(key)
        if found is None:
            found = read_configuration(self._model, config)
            if len(key) > LONGEST_REMEMBERED:
                return found
            if len(self._known) >= self._remembered:
                self._known.pop(next(iter(self._known)), None)
            self._known[key] = found
        return found


def read_configuration(model: type[C], config: Any) -> C:
    """Return the configuration, or raise `Permanent` with the first wrong field."""
    try:
        return model.model_validate(config or {})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(["config", *map(str, first["loc"])])
        raise Permanent(f"{where}: {first['msg']}") from None
