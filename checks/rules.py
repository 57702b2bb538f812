"""The rules: each finds what breaks it in a parsed module, and says why it exists."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

Function = ast.FunctionDef | ast.AsyncFunctionDef

MODULE_LINES = 400
FUNCTION_LINES = 40
PARAMETERS = 5
NESTING = 3
BLOCKS = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.TryStar,
    ast.Match,
)
# Typer and FastAPI read options, queries and bodies from the parameters of these.
DECLARES = {"command", "callback", "get", "post", "put", "patch", "delete", "api_route"}
BANNED = {
    "utils", "util", "helpers", "helper", "misc", "common", "manager", "info",
    "desk", "house", "voice", "shield", "lane", "lanes", "board", "asked", "street",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Module:
    """A source file: its path below the package, its text and its syntax tree."""

    path: PurePosixPath
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def functions(self) -> Iterator[tuple[str, Function]]:
        """Yield every function with its qualified name."""
        yield from _functions(self.tree, "")


@dataclass(frozen=True, slots=True)
class Finding:
    """A place that breaks a rule. `name` identifies it in the list of exceptions."""

    name: str
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Rule:
    title: str
    reason: str
    find: Callable[[Module], Iterator[Finding]]


def long_modules(module: Module) -> Iterator[Finding]:
    lines = len(module.text.splitlines())
    if lines > MODULE_LINES:
        yield Finding(str(module.path), MODULE_LINES + 1, f"the module has {lines} lines")


def long_functions(module: Module) -> Iterator[Finding]:
    for name, function in module.functions():
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES:
            yield _found(module, name, function, f"{name} has {lines} lines")


def many_parameters(module: Module) -> Iterator[Finding]:
    for name, function in module.functions():
        count = _count_parameters(function)
        if count > PARAMETERS and not _is_declaration(function):
            yield _found(module, name, function, f"{name} has {count} parameters")


def deep_nesting(module: Module) -> Iterator[Finding]:
    for name, function in module.functions():
        depth = _depth(function)
        if depth > NESTING:
            yield _found(module, name, function, f"{name} nests {depth} levels deep")


def banned_names(module: Module) -> Iterator[Finding]:
    words = {word for part in module.path.with_suffix("").parts for word in part.split("_")}
    for word in sorted(words & BANNED):
        yield Finding(str(module.path), 1, f"the path contains the word {word!r}")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and node.name.lower() in BANNED:
            yield Finding(f"{module.path}:{node.name}", node.lineno, f"class {node.name}")


def gerund_modules(module: Module) -> Iterator[Finding]:
    if module.path.stem.endswith("ing"):
        yield Finding(str(module.path), 1, "the file is named by an -ing")


def mixins(module: Module) -> Iterator[Finding]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            bases = [ast.unparse(base) for base in node.bases]
            if node.name.endswith("Mixin") or sum(not _is_marker(base) for base in bases) > 1:
                yield Finding(
                    f"{module.path}:{node.name}",
                    node.lineno,
                    f"class {node.name} has the bases {', '.join(bases)}",
                )


RULES = (
    Rule(
        f"a module has at most {MODULE_LINES} lines",
        "A module is one idea, and one idea fits on ten screens.",
        long_modules,
    ),
    Rule(
        f"a function has at most {FUNCTION_LINES} lines",
        "A reader sees all of it at once.",
        long_functions,
    ),
    Rule(
        f"a function has at most {PARAMETERS} parameters",
        "More belong in a type. Commands and routes declare options, and are exempt.",
        many_parameters,
    ),
    Rule(
        f"blocks nest at most {NESTING} levels deep",
        "Deeper code hides a function that has no name yet.",
        deep_nesting,
    ),
    Rule(
        "names say what a thing is",
        "`utils` says nothing, and a metaphor has to be learned.",
        banned_names,
    ),
    Rule(
        "no file is named by an -ing",
        "Files hold things; functions do them.",
        gerund_modules,
    ),
    Rule(
        "a class has one base, and no mixins",
        "A class that is spread over files has to be put together in the reader's head.",
        mixins,
    ),
)


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield f"{prefix}{child.name}", child
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def _found(module: Module, name: str, function: Function, message: str) -> Finding:
    return Finding(f"{module.path}:{name}", function.lineno, message)


def _count_parameters(function: Function) -> int:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    if positional and positional[0].arg in ("self", "cls"):
        positional = positional[1:]
    return len(positional) + len(arguments.kwonlyargs)


def _is_declaration(function: Function) -> bool:
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(called, ast.Attribute) and called.attr in DECLARES:
            return True
    return False


def _depth(node: ast.AST) -> int:
    """Return how deep blocks nest; `elif` goes no deeper than its `if`."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and child in node.orelse
        is_block = isinstance(child, BLOCKS) and not is_elif
        deepest = max(deepest, _depth(child) + is_block)
    return deepest


def _is_marker(base: str) -> bool:
    """Return whether a base only marks the class and adds no methods to read."""
    return base.partition("[")[0] in {
        *("Generic", "Protocol", "ABC", "Enum", "StrEnum", "str"),
        *("ValueError", "LookupError"),  # for callers that catch the built-in exception
    }
