"""Repositories in local folders: which may be read, and how none of their code ever runs."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from syncline.children.limits import ChildLimits
from syncline.connectors.git.program import Git
from syncline.errors import Permanent

MAX_FILE = 4_096  # the name of a folder or a branch is one line
MAX_CONFIG = 1_000_000
MAX_ALTERNATES = 100
LINKED = ("objects", "refs", "packed-refs", "shallow", "reftable")
EXTENSIONS = ("objectformat", "refstorage")  # only how objects and refs are stored


class Folders(NamedTuple):
    """The folder with a repository's HEAD, and the folder that its worktrees share."""

    git: Path
    common: Path


def path_of(url: str) -> str | None:
    """Return the folder if `url` is an absolute path, or None."""
    path = url.removeprefix("file://")
    return path if path.startswith("/") else None


def find_folders(path: str, roots: Iterable[Path]) -> Folders:
    """Return the folders of a repository inside the roots.

    Missing and forbidden folders give the same error, so that nobody can explore the disk.
    """
    allowed = [Path(os.path.realpath(root)) for root in roots]
    try:
        found = _folders(path)
        parts = [*_parts(found), *_object_folders(found.common / "objects")]
    except (OSError, ValueError):
        parts = []
    if not parts or not all(_is_inside(part, allowed) for part in parts):
        raise Permanent(
            "config.url: there is no readable git repository; "
            "add its folder to git.local_roots if there should be"
        )
    return found


def roots_of(repository: Path) -> list[Path]:
    """Return the roots that a repository needs; a worktree keeps most of its data elsewhere."""
    found = _folders(str(repository))
    return sorted({Path(os.path.realpath(repository)), *found})


async def build_view(folders: Folders, view: Path, limits: ChildLimits) -> Path:
    """Fill a folder with links to a repository's objects and refs, and a config of our own.

    Git runs on this view, because the repository's own config may name programs and other files.
    """
    listed = await Git(view, limits)("config", "--list", "-z", "--file", _config(folders))
    extensions = dict(entry.split("\n", 1) for entry in listed.split("\0") if "\n" in entry)
    lines = ["[core]", "repositoryformatversion = 1", "bare = true", "[extensions]"]
    for name in EXTENSIONS:
        value = extensions.get(f"extensions.{name}", "")
        lines += [f"{name} = {value}"] if value.isalnum() else []
    _link(folders, view, "\n".join([*lines, ""]))
    return view


def _link(folders: Folders, view: Path, config: str) -> None:
    (view / "config").write_text(config)
    (view / "HEAD").write_text(_read_line(folders.git / "HEAD") + "\n")
    for name in LINKED:
        if (folders.common / name).exists():
            (view / name).symlink_to(os.path.realpath(folders.common / name))


def _config(folders: Folders) -> str:
    config = folders.common / "config"
    if not config.is_file() or config.stat().st_size > MAX_CONFIG:
        return os.devnull
    return str(config)


def _folders(path: str) -> Folders:
    folder = Path(os.path.realpath(path))
    git = folder / ".git" if (folder / ".git").exists() else folder
    if git.is_file():  # a worktree or a submodule
        git = git.parent / _read_line(git).removeprefix("gitdir: ")
    git = Path(os.path.realpath(git))
    common = git / _read_line(git / "commondir") if (git / "commondir").exists() else git
    return Folders(git, Path(os.path.realpath(common)))


def _parts(folders: Folders) -> Iterator[Path]:
    """Yield the paths that git reads; raise OSError if a required one is missing."""
    for needed in (folders.git / "HEAD", folders.common / "objects", folders.common / "refs"):
        needed.stat()
    yield folders.git
    yield folders.git / "HEAD"
    for name in (*LINKED, "config"):
        yield folders.common / name


def _object_folders(first: Path) -> Iterator[Path]:
    """Yield the object folders: the repository's own and its alternates."""
    waiting, seen = [first], set[Path]()
    while waiting:
        folder = Path(os.path.realpath(waiting.pop()))
        if folder in seen:
            continue
        seen.add(folder)
        if len(seen) > MAX_ALTERNATES:
            raise ValueError("too many alternates")
        yield from (folder, folder / "pack", folder / "info")
        alternates = folder / "info" / "alternates"
        if alternates.exists():
            yield alternates
            lines = _read(alternates, MAX_FILE * MAX_ALTERNATES).split("\n")
            waiting += [folder / line for line in lines if line and not line.startswith("#")]


def _is_inside(path: Path, roots: Iterable[Path]) -> bool:
    real = Path(os.path.realpath(path))
    return any(real == root or root in real.parents for root in roots)


def _read_line(path: Path) -> str:
    return _read(path, MAX_FILE).strip()


def _read(path: Path, size: int) -> str:
    if not path.is_file():  # reading a pipe would block
        raise ValueError("not a file")
    with path.open("rb") as file:
        return file.read(size).decode()
