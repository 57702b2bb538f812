"""Postgres' own parse tree of a statement, read from the server's log."""

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
    """A node of the tree: its kind, and the value of each of its fields."""

    kind: str
    fields: dict[str, list[Any]] = field(default_factory=dict)

    def number(self, name: str) -> int:
        return int(self.fields[name][0])

    def directly_in(self, name: str) -> list["Node"]:
        return list(_nodes(self.fields.get(name, [])))

    def inside(self, *names: str) -> Iterator["Node"]:
        """Return every node in the named fields (in all of them by default), at any depth."""
        for name in names or self.fields:
            for child in self.directly_in(name):
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
    """Read a tree: {KIND :field value ...}, where a value is atoms, lists and further nodes."""
    top: list[Any] = []
    # What is open: a node (or None for a list), and where the next value goes.
    stack: list[tuple[Node | None, list[Any]]] = [(None, top)]
    tokens = iter(TOKEN.findall(text))
    for token in tokens:
        node, values = stack[-1]
        if token == "{":
            child = Node(next(tokens))
            values.append(child)
            stack.append((child, []))
        elif token == "(":
            items: list[Any] = []
            values.append(items)
            stack.append((None, items))
        elif token in ("}", ")"):
            stack.pop()
        elif node is not None and token.startswith(":"):
            stack[-1] = (node, node.fields.setdefault(token[1:], []))
        else:
            values.append(token)
    [root] = top
    assert isinstance(root, Node)
    return root


def _nodes(values: list[Any]) -> Iterator[Node]:
    for value in values:
        if isinstance(value, Node):
            yield value
        elif isinstance(value, list):
            yield from _nodes(value)
