"""Each migration has a number of its own, and no number is left out."""

from pathlib import Path


def check_migrations(folder: Path) -> list[str]:
    """Return the migrations whose number is not the next one: two branches may both take it."""
    names = sorted(path.name for path in folder.glob("*.sql"))
    return [
        f"{folder.name}/{name}: its number is not {number:04}; take the next free one"
        for number, name in enumerate(names, start=1)
        if not name.startswith(f"{number:04}_")
    ]
