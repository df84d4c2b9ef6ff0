"""A table of a config file read key by key, so that every mistake is named where it stands.

    windows = Section("windows", {"history": 24, "laed": 6})
    windows.need("history", whole(1))      # 24
    windows.close()                        # unknown key 'windows.laed'; did you mean 'lead'?

A reader takes a value and returns it, or raises a `ValueError` that says what it wanted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, TypeVar

from scrollmt.cli.shell import Problem, sentence

T = TypeVar("T")
D = TypeVar("D")
Read = Callable[[Any], T]


class Section:
    """One table of the file; `close` refuses the keys that were not read."""

    def __init__(self, name: str, content: Any):
        if not isinstance(content, Mapping):
            raise Problem(f"{name} must be a table such as [{name}], got {content!r:.60}")
        self.name = name
        self.content = dict(content)
        self.known: list[str] = []

    def key(self, key: str) -> str:
        """The full name of a key, as a user would look for it."""
        return f"{self.name}.{key}" if self.name else key

    def has(self, key: str) -> bool:
        self.known.append(key)
        return key in self.content

    def need(self, key: str, read: Read[T]) -> T:
        if not self.has(key):
            near = get_close_matches(key, self.content, n=1)
            hint = f" (there is {near[0]!r}: is that it?)" if near else ""
            raise Problem(f"{self.key(key)} is missing{hint}; it must be {_wanted(read)}")
        return self._read(key, read)

    def get(self, key: str, read: Read[T], default: D) -> T | D:
        return self._read(key, read) if self.has(key) else default

    def one_of(self, readers: Mapping[str, Read[Any]]) -> tuple[str, Any] | None:
        """The one key that is given among several that exclude each other."""
        given = [key for key in readers if self.has(key)]
        if len(given) > 1:
            raise Problem(f"give only one of {', '.join(self.key(key) for key in given)}")
        return (given[0], self._read(given[0], readers[given[0]])) if given else None

    def section(self, key: str) -> Section:
        """A table within this one, empty where it is not given."""
        return Section(self.key(key), self.content[key] if self.has(key) else {})

    def named(self, key: str) -> dict[str, Section]:
        """Tables under names that the user chose: [key.NAME]."""
        tables = self.section(key).content
        return {name: Section(f"{self.key(key)}.{name}", one) for name, one in tables.items()}

    def listed(self, key: str) -> list[Section]:
        """Tables without a name: [[key]]."""
        found = self.content[key] if self.has(key) else []
        if not isinstance(found, list):
            raise Problem(f"{self.key(key)} is a list of tables, each under [[{self.key(key)}]]")
        return [Section(f"{self.key(key)}[{n}]", one) for n, one in enumerate(found)]

    def close(self, *more: str) -> None:
        """Refuse keys that were not asked for and are none of ``more``."""
        self.known += more
        for key in self.content:
            if key in self.known:
                continue
            near = get_close_matches(key, self.known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            where = f"[{self.name}]" if self.name else "the file"
            raise Problem(
                f"unknown key {self.key(key)!r}; {hint}{where} takes "
                f"{', '.join(dict.fromkeys(self.known))}"
            )

    @contextmanager
    def about(self, key: str | None = None) -> Iterator[None]:
        """Name this table, or a key of it, in an error that the library raises inside."""
        try:
            yield
        except ValueError as error:
            name = self.name if key is None else self.key(key)
            raise Problem(f"{name}: {sentence(error)}") from error

    def _read(self, key: str, read: Read[T]) -> T:
        value = self.content[key]
        try:
            return read(value)
        except ValueError as error:
            raise Problem(f"{self.key(key)} must be {error}, got {value!r:.80}") from None


def _wanted(read: Read[Any]) -> str:
    try:
        read(None)
    except ValueError as error:
        return str(error)
    return "given"


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("text in quotes")
    return value


def texts(value: Any) -> tuple[str, ...]:
    """One text, or a list of different ones."""
    found = [value] if isinstance(value, str) else value
    good = isinstance(found, list) and found and all(isinstance(v, str) and v for v in found)
    if not good or len(set(found)) < len(found):
        raise ValueError("text in quotes, or a list of different texts")
    return tuple(found)


def number(value: Any) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            found = float(value)
            if math.isfinite(found):
                return found
    except OverflowError:
        pass
    raise ValueError("a number")


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def whole(least: int, most: int = 2**32 - 1) -> Read[int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            reach = f"from {least} on" if most == 2**32 - 1 else f"from {least} to {most}"
            raise ValueError(f"a whole number {reach}")
        return value

    return read


def many(read: Read[T], wanted: str) -> Read[tuple[T, ...]]:
    """A list with at least one entry; ``wanted`` says of what."""

    def read_all(value: Any) -> tuple[T, ...]:
        try:
            if isinstance(value, list) and value:
                return tuple(read(one) for one in value)
        except ValueError:
            pass
        raise ValueError(f"a list of {wanted}")

    return read_all


numbers = many(number, "numbers")


def wholes(least: int) -> Read[tuple[int, ...]]:
    return many(whole(least), f"whole numbers from {least} on")


def between(low: float, high: float) -> Read[float]:
    """A number in [low, high)."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value < high:
            raise ValueError(f"a number from {low:g} to below {high:g}")
        return float(value)

    return read


def choice(options: Iterable[str]) -> Read[str]:
    known = list(options)

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"one of {', '.join(map(repr, known))}")
        return value

    return read


def either(first: Read[T], second: Read[D]) -> Read[T | D]:
    def read(value: Any) -> T | D:
        try:
            return first(value)
        except ValueError as one:
            try:
                return second(value)
            except ValueError as other:
                raise ValueError(f"{one} or {other}") from None

    return read
