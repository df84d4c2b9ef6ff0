"""Presets: every choice that `fit` leaves open, as one value.

A preset is a portfolio of candidates that the validation score chooses among, a training
schedule, and the conventions for scales. `PAPER` is the published protocol
(`app:details`) with its four backbones as candidates; `DEFAULT` is what a user gets: the
same two layers throughout, with a ladder of backbone penalties, because some systems want
all the capacity there is and others next to none. `HELD_OUT` is the default of version 0.1, and
`QUICK` a part of that, for first looks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from jaxtyping import PRNGKeyArray

from scrollmt._io.arguments import check_number, check_type, check_whole, shown
from scrollmt.backbone import PAPER_BACKBONES, PAPER_WIDTH, Dense
from scrollmt.beliefs import NARROW, PAPER_COV_FLOOR, Start
from scrollmt.fit import Schedule

HELD_OUT_SHARE = 0.2


@dataclass(frozen=True)
class Architecture:
    """The shape of a `Dense` backbone, without its weights."""

    widths: tuple[int, ...]
    activation: str
    bias: bool
    norm: bool
    skip: bool = False

    def build(self, in_size: int, key: PRNGKeyArray, *, uniform: bool = False) -> Dense:
        return Dense(
            in_size,
            self.widths,
            activation=self.activation,
            bias=self.bias,
            norm=self.norm,
            key=key,
            uniform=uniform,
            skip=self.skip,
        )


@dataclass(frozen=True)
class Candidate:
    """One configuration: an architecture and its numbers."""

    name: str
    architecture: Architecture
    learning_rate: float
    backbone_l2: float


@dataclass(frozen=True)
class Large:
    """How many rows are fitted, where folds win little and cost most.

    With more than `above` rows, at most `held_out` of them validate and the others train. The
    candidates race on `race_rows` random rows with the preset's own schedule. The best `finalists`
    train on all training rows in minibatches of `batch_size`, `passes` times over, from `starts`
    starting values each. They are scored on `watched` of the validation rows while they train, and
    on all of them when they are weighed for each task. Of a stream, standardised rows of up to
    `memory` bytes are kept in memory, and more in a temporary file.
    """

    above: int = 50_000
    held_out: int = 20_000
    watched: int = 5_000
    race_rows: int = 20_000
    finalists: int = 2
    starts: int = 2
    batch_size: int = 256
    passes: int = 20
    memory: int = 2**30

    def __post_init__(self) -> None:
        for name, least in {"above": 20, "race_rows": 10, "passes": 0, "memory": 0}.items():
            check_whole(f"Large: {name}", getattr(self, name), least)
        for name in ("held_out", "watched", "finalists", "starts", "batch_size"):
            check_whole(f"Large: {name}", getattr(self, name), 1)


@dataclass(frozen=True)
class Preset:
    """What is tried, how it is trained, and in which units.

    `schedule` holds for small data; with minibatches it is stretched so that every window
    is seen at least `min_passes` times, with as many evaluations as before.
    `scale_targets` divides Gaussian targets by their sd for training; laws always come
    back in the user's units. With a held-out part every candidate is run from `starts` starting
    values; the best `committee` runs on a task's own validation NLL are mixed for that task, and
    None takes the best run on the sum for all. With a committee, one label counts for at most
    `score_bound` nats in the validation score. `begin` is where weights and beliefs start.
    With `folds` every row trains: each fold is the validation part of its own runs, all candidates
    run on the first fold and the `finalists` on the others, and out-of-fold scores weigh
    them for each task. `moments` mixes Gaussian laws into one with the mixture's two moments, as
    the paper does, instead of keeping the mixture. With folds and `further_heads`, variants of a
    head and the numbers behind classes are trained too, and out-of-fold scores weigh their answers.
    `large` is the rule for many rows, which folds and the candidates' starts do not apply to; None
    has no such rule.
    """

    name: str
    candidates: tuple[Candidate, ...]
    schedule: Schedule
    cov_floor: float
    scale_targets: bool
    min_passes: int = 1
    starts: int = 1
    committee: int | None = None
    begin: Start = NARROW
    score_bound: float | None = None
    folds: int | None = None
    finalists: int = 3
    moments: bool = False
    further_heads: bool = True
    large: Large | None = None

    def __post_init__(self) -> None:
        where = f"Preset {self.name!r}"
        check_type("Preset: name", self.name, str, "text")
        check_type(f"{where}: candidates", self.candidates, (tuple, list), "a tuple of Candidate")
        object.__setattr__(self, "candidates", tuple(self.candidates))
        if not self.candidates:
            raise ValueError(f"{where}: candidates must hold at least one Candidate")
        for one in self.candidates:
            check_type(f"{where}: candidates", one, Candidate, "a tuple of Candidate")
        check_type(f"{where}: schedule", self.schedule, Schedule, "a Schedule")
        check_type(f"{where}: scale_targets", self.scale_targets, bool, "True or False")
        check_type(f"{where}: begin", self.begin, Start, "a Start")
        check_number(f"{where}: cov_floor", self.cov_floor, 0.0)
        check_whole(f"{where}: min_passes", self.min_passes, 0)
        check_whole(f"{where}: starts", self.starts, 1)
        check_whole(f"{where}: finalists", self.finalists, 1)
        if self.committee is not None:
            check_whole(f"{where}: committee", self.committee, 1)
        if self.folds is not None:
            check_whole(f"{where}: folds", self.folds, 2)
        if self.large is not None:
            check_type(f"{where}: large", self.large, Large, "a Large")

    def with_schedule(self, steps: int | None = None, patience: int | None = None) -> Preset:
        """Another number of steps, another patience; None keeps that of the preset.

        Given steps are exact: they are not stretched for many windows.
        """
        preset = self
        if steps is not None:
            check_whole("steps", steps, 1)
            preset = replace(preset, schedule=replace(preset.schedule, steps=steps), min_passes=0)
        if patience is not None:
            check_whole("patience", patience, 1)
            preset = replace(preset, schedule=replace(preset.schedule, patience=patience))
        return preset

    def with_backbone(self, name: str) -> Preset:
        """Only the candidates of one name, or all of them for `"select"`."""
        if name == "select":
            return self
        kept = tuple(c for c in self.candidates if c.name == name)
        if not kept:
            names = list(dict.fromkeys(c.name for c in self.candidates))
            raise ValueError(
                f"preset {self.name!r} has no backbone {name!r}; choose from {names}, "
                "'select', or pass an Equinox module"
            )
        return replace(self, candidates=kept)

    def schedule_for(self, windows: int) -> Schedule:
        """The schedule for a number of training windows."""
        if self.schedule.batch_size is None:
            return self.schedule
        wanted = self.min_passes * windows / self.schedule.batch_size
        stretch = max(1, math.ceil(wanted / self.schedule.steps))
        return replace(
            self.schedule,
            steps=self.schedule.steps * stretch,
            eval_every=self.schedule.eval_every * stretch,
            warmup=self.schedule.warmup * stretch,
        )

    def large_for(self, windows: int) -> Large | None:
        """The rule for many rows, where there are that many."""
        return self.large if self.large is not None and windows > self.large.above else None

    def validation_for(self, windows: int) -> int | float:
        """How to validate where the user leaves it open: a number of folds, or a share."""
        large = self.large_for(windows)
        if large is not None:
            return min(HELD_OUT_SHARE, large.held_out / windows)
        return self.folds or HELD_OUT_SHARE


def large_schedule(preset: Preset, large: Large, windows: int) -> Schedule:
    """The schedule of the runs on all rows; steps that the user gave are exact."""
    schedule = replace(preset.schedule, batch_size=large.batch_size)
    evaluations = math.ceil(schedule.steps / schedule.eval_every)
    every = math.ceil(large.passes * windows / large.batch_size / evaluations)
    if not preset.min_passes or every <= schedule.eval_every:
        return schedule
    return replace(schedule, steps=every * evaluations, eval_every=every, warmup=every)


def _paper_candidate(name: str) -> Candidate:
    activation, _, norm = name.partition("+")
    shape = Architecture((PAPER_WIDTH,), activation, bias=False, norm=norm == "ln")
    return Candidate(name, shape, learning_rate=0.03, backbone_l2=0.01)


PAPER = Preset(
    name="paper",
    candidates=tuple(_paper_candidate(name) for name in PAPER_BACKBONES),
    # The paper gives no patience, interval of scoring or starting values. These fit its figures
    # (docs/results/open-choices.md), weights being drawn as PyTorch draws those of a linear layer.
    schedule=Schedule(steps=5000, eval_every=10, patience=30),
    begin=Start(mu=1.0, uniform=True),
    cov_floor=PAPER_COV_FLOOR,
    scale_targets=False,
    moments=True,
)

_TWO_LAYERS = Architecture((64, 64), "silu", bias=True, norm=True)

HELD_OUT = Preset(
    name="held-out",
    candidates=tuple(
        Candidate("silu+ln", _TWO_LAYERS, learning_rate=0.01, backbone_l2=penalty)
        for penalty in (1.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
    ),
    schedule=Schedule(
        steps=2250,
        batch_size=256,
        eval_every=15,
        patience=60,
        warmup=15,
        final_rate=0.0,
        average=0.99,
    ),
    # In units of the target's own sd, hence far below the paper's floor.
    cov_floor=1e-6,
    scale_targets=True,
    min_passes=20,
    starts=2,
    committee=3,
    # Six sds off, or a probability of one in 500 million: such a label is more likely a mistake.
    score_bound=20.0,
    moments=True,
)
"""The default of version 0.1: a fifth of the rows is held out, and the best three of twelve runs on
each task's validation NLL become one law with two moments. About half the cost of `DEFAULT`.
"""

DEFAULT = replace(
    HELD_OUT,
    name="default",
    # The inputs are features too, so that a linear model is inside the family.
    candidates=tuple(
        Candidate("silu+ln", replace(_TWO_LAYERS, skip=True), 0.01, penalty)
        for penalty in (0.1, 1.0, 10.0, 50.0, 200.0, 1000.0)
    ),
    folds=5,
    moments=False,
    # Wide: three orders of magnitude cost two nats. Without it a large precision feels no slope.
    begin=Start(prior_precision=0.1, precision_sd=2.0),
    large=Large(),
)
"""What a user gets: five folds, each the validation part of its own runs, so that every row trains;
six penalties race over the folds, and out-of-fold scores weigh them by task.
"""

QUICK = replace(
    HELD_OUT,
    name="quick",
    candidates=tuple(c for c in HELD_OUT.candidates if c.backbone_l2 in (1.0, 10.0, 100.0, 1000.0)),
    schedule=replace(HELD_OUT.schedule, steps=1500),
    starts=1,
    committee=2,
)
"""`HELD_OUT` with less to choose from, for first looks: four of the six penalties, one start
instead of two, two runs mixed for a task instead of three, 1500 steps instead of 2250: about a
tenth of the training of `DEFAULT`. Compiling, once in a process, takes as long.
"""

PRESETS = {preset.name: preset for preset in (DEFAULT, QUICK, HELD_OUT, PAPER)}


def get_preset(preset: str | Preset) -> Preset:
    if isinstance(preset, Preset):
        return preset
    if not isinstance(preset, str) or preset not in PRESETS:
        raise ValueError(
            f"unknown preset {shown(preset)}; choose from {list(PRESETS)} or pass a Preset"
        )
    return PRESETS[preset]
