"""Where the files of a corpus are: at a path that is given, or in the folder of all data."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER_VARIABLE = "SCROLLMT_DATA"


def located(path: str | os.PathLike[str] | None, *names: str) -> Path:
    """The file or folder ``names[-1]``.

    ``path`` is it itself, or a folder that holds it. Without a path the folder is the one named
    by the environment variable SCROLLMT_DATA, where it may lie below ``names[:-1]``.
    """
    if path is None:
        named = os.environ.get(FOLDER_VARIABLE)
        if not named:
            raise ValueError(
                f"No path to {names[-1]} was given: pass path=, or name the folder that holds it "
                f"by the environment variable {FOLDER_VARIABLE}."
            )
        path = named
    given = Path(path)
    if given.name == names[-1] and given.exists():
        return given
    for place in (given.joinpath(*names), given / names[-1]):
        if place.exists():
            return place
    raise ValueError(
        f"There is no {names[-1]} in {given}. Pass its path or that of its folder, or name the "
        f"folder by the environment variable {FOLDER_VARIABLE}."
    )
