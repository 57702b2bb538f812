"""How an operation of the API is written once, and called in two ways.

A method of a noun describes its call. With an `AsyncClient` the caller gets an awaitable or an
asynchronous iterator, with a `Client` the result or an iterator. Type checkers see the difference.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

P = ParamSpec("P")
T = TypeVar("T")
Mode = TypeVar("Mode")


class Async:
    """The mode of an `AsyncClient`."""


class Plain:
    """The mode of a `Client`."""


class Repeat(Enum):
    """When a call may be sent again."""

    ALWAYS = "always"  # twice is the same as once
    UNLESS_LOST = "unless lost"  # if it was refused, or never sent
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request to the API.

    `answer` is the type of the answer, None for none; `pick` takes the result out of it.
    """

    method: str
    path: str
    answer: Any = None
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeat: Repeat = Repeat.ALWAYS
    pick: Callable[[Any], T] | None = None


class Caller(Protocol):
    """A client, as its nouns see it."""

    def perform(self, call: Call[Any]) -> Any: ...

    def iterate(self, call: Call[Any]) -> Any: ...

    def follow(self, query: Mapping[str, Any], position: str) -> Any: ...


class Noun(Generic[Mode]):
    """Some operations of a client."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller


class operation(Generic[P, T]):  # noqa: N801  (a decorator, like `property`)
    """A method that describes a call; calling it sends the request."""

    def __init__(self, describe: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, noun: None, owner: Any) -> "operation[P, T]": ...
    @overload
    def __get__(self, noun: Noun[Async], owner: Any) -> Callable[P, Awaitable[T]]: ...
    @overload
    def __get__(self, noun: Noun[Plain], owner: Any) -> Callable[P, T]: ...
    def __get__(self, noun: Noun[Any] | None, owner: Any) -> Any:
        if noun is None:
            return self

        @wraps(self._describe)
        def send(*args: P.args, **kwargs: P.kwargs) -> Any:
            return noun._caller.perform(self._describe(noun, *args, **kwargs))

        return send


class listing(Generic[P, T]):  # noqa: N801
    """A method that describes the call for a page; it iterates over the items of all pages."""

    def __init__(self, describe: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self._describe = describe
        self.__doc__ = describe.__doc__

    @overload
    def __get__(self, noun: None, owner: Any) -> "listing[P, T]": ...
    @overload
    def __get__(self, noun: Noun[Async], owner: Any) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, noun: Noun[Plain], owner: Any) -> Callable[P, Iterator[T]]: ...
    def __get__(self, noun: Noun[Any] | None, owner: Any) -> Any:
        if noun is None:
            return self

        @wraps(self._describe)
        def send(*args: P.args, **kwargs: P.kwargs) -> Any:
            return noun._caller.iterate(self._describe(noun, *args, **kwargs))

        return send
