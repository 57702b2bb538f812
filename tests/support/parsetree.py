"""What Postgres itself understands of a statement: its parse tree, read from the server's log."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

TOKEN = re.compile(r'[{}()\[\]]|"(?:\\.|[^"\\])*"|(?:\\.|[^\s{}()\[\]"])+', re.DOTALL)
SHOW_TREES = """
    SET client_min_messages = log;
    SET debug_print_parse = on;
    SET debug_pretty_print = off;
    SET search_path = ''
"""


@dataclass(slots=True)
class Node:
    """A node of the tree: its kind, and what stands in each of its fields."""

    kind: str
    fields: dict[str, list[Any]] = field(default_factory=dict)

    def number(self, name: str) -> int:
        return int(self.fields[name][0])

    def inside(self, *names: str) -> Iterator["Node"]:
        """Return every node in the named fields (in all of them by default), at any depth."""
        for name in names or self.fields:
            for child in _nodes(self.fields.get(name, [])):
                yield child
                yield from child.inside()


async def parse(session: Any, statement: str) -> Node:
    """Return the tree of a statement; every name in it has to be qualified."""
    trees: list[str] = []
    heard = asyncio.Event()

    def hear(_: object, message: Any) -> None:
        trees.append(message.message.removeprefix("parse tree:"))
        trees.append(message.detail or "")
        heard.set()

    await session.execute(SHOW_TREES)
    session.add_log_listener(hear)
    try:
        await session.prepare(statement)
        await heard.wait()
    finally:
        session.remove_log_listener(hear)
    return _read(trees[0] or trees[1])


def _read(text: str) -> Node:
    stack: list[Any] = [[]]
    open_fields: list[list[Any]] = [stack[0]]
    tokens = iter(TOKEN.findall(text))
    for token in tokens:
        if token == "{":
            node = Node(next(tokens))
            open_fields[-1].append(node)
            stack.append(node)
            open_fields.append([])
        elif token == "(":
            inner: list[Any] = []
            open_fields[-1].append(inner)
            stack.append(inner)
            open_fields.append(inner)
        elif token in "})":
            stack.pop()
            open_fields.pop()
        elif token.startswith(":") and isinstance(stack[-1], Node):
            open_fields[-1] = stack[-1].fields[token[1:]] = []
        else:
            open_fields[-1].append(token)
    root = stack[0][0]
    assert isinstance(root, Node)
    return root


def _nodes(values: list[Any]) -> Iterator[Node]:
    for value in values:
        if isinstance(value, Node):
            yield value
        elif isinstance(value, list):
            yield from _nodes(value)
