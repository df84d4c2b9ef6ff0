"""How many seeds, draws or origins are behind a finding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scrollmt.paper.tables.selection import DRAW_STRIDE

ORIGIN = "/"


@dataclass(frozen=True)
class Sample:
    """What a finding was read from.

    - `n`: in words, empty where no run was read.
    - `size`: how many values a standard error is over: rolling origins where there are any, else
      seeds, of the corpus with the fewest.
    - `draws`: the most draws of one corpus.
    """

    n: str = ""
    size: int = 0
    draws: int = 1


NO_RUNS = Sample()


def sample(asked: Iterable[tuple[str, Sequence[int]]]) -> Sample:
    """The sample of a finding that read these seeds, by corpus.

    A corpus that was asked several times counts with the fewest seeds: a paired difference has no
    more pairs.
    """
    seeds: dict[str, Sequence[int]] = {}
    origins: dict[str, set[str]] = {}
    for corpus, own in asked:
        name, _, origin = corpus.partition(ORIGIN)
        if name not in seeds or len(own) < len(seeds[name]):
            seeds[name] = own
        if origin:
            origins.setdefault(name, set()).add(origin)
    if not seeds:
        return NO_RUNS
    words: dict[str, list[str]] = {}
    most = 1
    for name, own in seeds.items():
        draws = len({seed // DRAW_STRIDE for seed in own})
        most = max(most, draws)
        text = f"{len(own) // draws} seed{'s' if len(own) > draws else ''}"
        if draws > 1:
            text = f"{draws} draws x {text}"
        if name in origins:
            text = f"{len(origins[name])} origins x {text}"
        words.setdefault(text, []).append(name)
    told = [
        f"{text} ({', '.join(names)})" if len(words) > 1 else text for text, names in words.items()
    ]
    size = min(len(origins[name]) if name in origins else len(own) for name, own in seeds.items())
    return Sample("; ".join(told), size, most)
