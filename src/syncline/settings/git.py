"""The settings of the git connector."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from syncline.settings.checks import Component, split_names


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("it must be an absolute path")
    return path


Folder = Annotated[Path, AfterValidator(_absolute)]
Folders = Annotated[list[Folder], NoDecode, BeforeValidator(split_names)]
Schemes = Annotated[list[Literal["git", "ssh"]], NoDecode, BeforeValidator(split_names)]


class GitSettings(Component):
    """Which repositories may be read, in addition to those at public https URLs."""

    local_roots: Folders = Field(
        default_factory=list, description="Folders whose repositories may be read."
    )
    schemes: Schemes = Field(
        default_factory=list, description="Schemes allowed in addition to https: git, ssh."
    )
    known_hosts: Folder | None = Field(None, description="File with the host keys that ssh trusts.")
