"""Database roles with exactly the rights that the documentation lists."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

SCHEMA_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "schema.md"
ROLES = ("syncline_app", "syncline_reader")


@asynccontextmanager
async def documented_roles(url: str) -> AsyncIterator[Any]:
    """Make the roles by the statements of the page itself; yield the owner's session."""
    async with connected(url) as owner:
        for block in sql_blocks(SCHEMA_PAGE, heading="## Roles"):
            await owner.execute(block)
        try:
            # Somebody took away what Postgres gives to everybody.
            await owner.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
            await owner.execute("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA syncline FROM PUBLIC")
            yield owner
        finally:
            for role in ROLES:
                await owner.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    session = await asyncpg.connect(url)
    try:
        yield session
    finally:
        await session.close()


def as_role(url: str, role: str) -> str:
    return re.sub(r"//[^@/]*@", f"//{role}@", url)


def sql_blocks(page: Path, *, heading: str) -> list[str]:
    section = page.read_text("utf-8").partition(heading)[2].partition("\n## ")[0]
    return re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
