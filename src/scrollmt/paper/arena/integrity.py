"""Integrity of a file of records: its tables, a checksum of every line, a digest over all lines.

The seal is the sum of the digests of all lines modulo 2**256. To record a line is to add its
digest, which costs the same however many lines there are. A line that is missing, changed or
added since gives another sum. Up to schema version 2 the seal was one digest of all checksums in
order; such files are read as they are, and get the new seal when they are first written to.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from scrollmt.paper.arena.runs import checksum, digest

APPLICATION_ID = 0x5C401147
SCHEMA_VERSION, OLDER_VERSION = 3, 2
SCHEMA = (
    """CREATE TABLE runs (
    key TEXT PRIMARY KEY NOT NULL,
    corpus TEXT NOT NULL,
    arm TEXT NOT NULL,
    backbone TEXT NOT NULL,
    seed INTEGER NOT NULL,
    determinants TEXT NOT NULL,
    rows TEXT NOT NULL,
    seconds REAL NOT NULL,
    environment TEXT NOT NULL,
    finished TEXT NOT NULL,
    checksum TEXT NOT NULL
)""",
    """CREATE TABLE arrays (
    key TEXT NOT NULL,
    name TEXT NOT NULL,
    data BLOB NOT NULL,
    checksum TEXT NOT NULL,
    PRIMARY KEY (key, name)
)""",
    """CREATE TABLE calls (
    data TEXT NOT NULL,
    checksum TEXT NOT NULL
)""",
    "CREATE TABLE seal (digest TEXT NOT NULL)",
)
# The columns that say to a reader which line of a table it is.
NAMES = {"runs": slice(1, 5), "arrays": slice(1, 2), "calls": slice(0, 0)}

Line = tuple[str, str]  # a table and the checksum of a line in it


def sealed(lines: Iterable[Line], before: str = "0") -> str:
    """The seal of what was sealed `before` and of further lines, in any order."""
    total = int(before, 16) + sum(int(digest(f"{table} {stored}"), 16) for table, stored in lines)
    return f"{total % 2**256:064x}"


def add_lines(
    connection: sqlite3.Connection, table: str, lines: Iterable[tuple[object, ...]]
) -> None:
    """Record lines under their checksums and the seal, within the caller's transaction."""
    added = []
    for line in lines:
        stored = checksum(line)
        marks = ", ".join("?" * (len(line) + 1))
        connection.execute(f"INSERT INTO {table} VALUES ({marks})", (*line, stored))
        added.append((table, stored))
    (seal,) = connection.execute("SELECT digest FROM seal").fetchone()
    connection.execute("UPDATE seal SET digest = ?", [sealed(added, seal)])


def create(connection: sqlite3.Connection) -> None:
    """Make the tables in an empty database."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    for table in SCHEMA:
        connection.execute(table)
    connection.execute("INSERT INTO seal VALUES (?)", [sealed([])])
    connection.execute("COMMIT")


def renew(connection: sqlite3.Connection) -> bool:
    """Give a file of the older version the new seal, in the caller's transaction; whether so."""
    older = _pragma(connection, "user_version") == OLDER_VERSION
    if older:
        connection.execute("UPDATE seal SET digest = ?", [sealed(_lines(connection))])
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    return older


def fault(connection: sqlite3.Connection) -> str | None:
    """What is wrong with a database, in words; None if it is whole."""
    if _pragma(connection, "application_id") != APPLICATION_ID:
        return "it holds no records of scrollmt"
    version = _pragma(connection, "user_version")
    if version not in (SCHEMA_VERSION, OLDER_VERSION):
        return (
            f"its schema version is {version}, but this scrollmt reads {OLDER_VERSION} and "
            f"{SCHEMA_VERSION}"
        )
    check = _pragma(connection, "integrity_check")
    if check != "ok":
        return f"it is damaged ({check})"
    tables = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    if [sql for (sql,) in tables] != list(SCHEMA):
        return "it is damaged (its tables are not those of records)"
    for table, name in NAMES.items():
        for *values, stored in connection.execute(f"SELECT * FROM {table}"):
            if checksum(values) != stored:
                whose = " ".join(map(str, values[name]))
                return f"it is damaged (the checksum of {whose or 'a line'} in {table} is wrong)"
    if version == SCHEMA_VERSION:
        seal = sealed(_lines(connection))
    else:
        seal = digest("".join(sorted(stored for _, stored in _lines(connection))))
    if connection.execute("SELECT digest FROM seal").fetchall() != [(seal,)]:
        return "it is damaged (it holds something else than was recorded)"
    return None


def _lines(connection: sqlite3.Connection) -> Iterator[Line]:
    for table in NAMES:
        for (stored,) in connection.execute(f"SELECT checksum FROM {table}"):
            yield table, stored


def _pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]
