"""What the paper leaves open, measured: the evidence behind docs/results/open-choices.md.

    python benchmarks/open_choices.py            # about an hour on two cores

Lorenz-63, four seeds, one backbone an arm: how the backbone penalty scales beside mean losses,
how the sd head is linked, which residuals give a point estimate its sd, and how long a run is
waited for. PM2.5 and OU, ten seeds, all backbones: where weights and beliefs start. Each reading
is held against the paper's figure for the same arm. At four seeds, where the equivariance probe
may have been run, and what clipped gradients would change. Writes docs/results/open-choices.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array

from scrollmt._numerics.normal import LOG_SQRT_2PI
from scrollmt.backbone import PAPER_BACKBONES
from scrollmt.fit import Hyper, Objective, Schedule
from scrollmt.heads import AbstractHead
from scrollmt.laws import GaussianLaw
from scrollmt.model import Model
from scrollmt.objective import Data
from scrollmt.paper.arena.jobs import environment, execute, make_job
from scrollmt.paper.arms import ARMS, Arm, register
from scrollmt.paper.arms.base import STATE, map_runs, root_mean_square
from scrollmt.paper.arms.weighted import MEANS_L2, Spread, cross_entropy, summed_nll
from scrollmt.paper.data import published
from scrollmt.paper.protocol import PROTOCOL, Protocol
from scrollmt.paper.studies.probes import equivariance
from scrollmt.paper.tables.selection import select

Record = dict[str, Any]
SEEDS = PROTOCOL.seeds[:4]
METRICS = ("reg_nll", "evt_nll", "ord_nll", "reg_calerr", "evt_acc_pct")
OUT = Path(__file__).resolve().parent.parent / "docs" / "results" / "open-choices.json"
PENALTIES = {"divided by N": 1 / 3900, "as written": 1.0, "doubled": 2.0, "times four": 4.0}
POINT_ARMS = {
    "map-probit": "tanh",
    "map-ce": "tanh",
    "kendall-ce": "tanh+ln",
    "mle-sigma-ce": "tanh+ln",
    "mle-sigma-probit": "tanh+ln",
}
# Fields of the protocol. Uniform means W and mu uniform within one over the root of their
# inputs, as PyTorch draws a linear layer; else W is drawn from N(0, 1/D) and mu from
# N(0, initial_mu^2/H). A belief's sds start at exp(initial_log_sd).
STARTS: dict[str, dict[str, Any]] = {
    "uniform, sds at exp(-2)": {},
    "uniform, sds at exp(-1.5)": {"initial_log_sd": -1.5},
    "uniform, sds at exp(-1)": {"initial_log_sd": -1.0},
    "normal, sds at exp(-2)": {"initial_uniform": False},
    "normal, sds at exp(-1)": {"initial_uniform": False, "initial_log_sd": -1.0},
    "normal, mu 0.1, sds at exp(-2)": {"initial_uniform": False, "initial_mu": 0.1},
}
START_ARMS = (
    ("pm25", "scroll-diag"),
    ("pm25", "scroll-full"),
    ("pm25", "mle-sigma-ce"),
    ("pm25", "mle-sigma-probit"),
    ("ou", "scroll-diag"),
)
PATIENCE = (10, 20, 30, 60)
PATIENCE_ARMS = {"scroll-diag": "tanh+ln", "scroll-none": "tanh", "map-probit": "tanh"}
# Where the equivariance probe may have been run, and from which sds.
SCALED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Lorenz-63, tanh+ln": ("lorenz63", "tanh+ln", {}),
    "Lorenz-63, tanh+ln, sds at exp(-1)": ("lorenz63", "tanh+ln", {"initial_log_sd": -1.0}),
    "Lorenz-63, tanh+ln, patience 10 scores": ("lorenz63", "tanh+ln", {"patience": 10}),
    "Lorenz-63, tanh": ("lorenz63", "tanh", {}),
    "Lorenz-63, relu": ("lorenz63", "relu", {}),
    "Lorenz-63, relu+ln": ("lorenz63", "relu+ln", {}),
    "PM2.5, relu": ("pm25", "relu", {}),
    "PM2.5, tanh+ln": ("pm25", "tanh+ln", {}),
    "OU, tanh": ("ou", "tanh", {}),
}
# The longest gradient of a run, where one is set, and how long the run is waited for.
CLIPS: dict[str, dict[str, Any]] = {
    "as they are": {},
    "clipped at 10": {"clip": 10.0},
    "clipped at 1,000": {"clip": 1000.0},
    "clipped at 1,000, patience 100 scores": {"clip": 1000.0, "patience": 100},
}
SCALES, CLIPPED = "targets times 8", "clipped gradients"
CLIPPED_SCALES = f"{CLIPPED}, {SCALES}"
CLIP_ARMS = {"scroll-diag": "tanh+ln", "scroll-none": "tanh", "scroll-full": "tanh"}
LINKS: dict[str, Callable[[Array], Array]] = {"exp": jnp.exp, "softplus": jax.nn.softplus}


@dataclass(frozen=True)
class Clipped(Protocol):
    """The protocol with gradients that may be clipped."""

    clip: float | None = None

    def schedule(self) -> Schedule:
        return replace(super().schedule(), clip=self.clip)


READING = Clipped()


class Linked(Spread):
    """The sd head with another link, with or without an offset."""

    link: str = eqx.field(static=True)
    offset: bool = eqx.field(static=True)

    def __init__(self, link: str, offset: bool):
        super().__init__()
        self.link, self.offset = link, offset

    def sd(self, line: Array) -> Array:
        return LINKS[self.link](line + self.log_sd_offset if self.offset else line)

    def log_predictive(self, y: Array, mean: Array, var: Array) -> Array:
        sd = self.sd(mean[..., 1])
        return -LOG_SQRT_2PI - jnp.log(sd) - 0.5 * ((y - mean[..., 0]) / sd) ** 2

    def law(self, mean: np.ndarray, var: np.ndarray) -> GaussianLaw:
        sd = np.asarray(self.sd(jnp.asarray(mean[..., 1])), np.float64)
        return GaussianLaw(np.asarray(mean[..., 0], np.float64), sd)

    def __repr__(self) -> str:
        return f"Linked({self.link}, {self.offset})"


def linked_heads(link: str, offset: bool) -> dict[str, AbstractHead]:
    return {**cross_entropy(), STATE: Linked(link, offset)}


def training_spread(models: Model, train: Data, valid: Data) -> Model:
    """The sd of a point estimate from its training residuals."""

    def log_spread(model: Model, train: Data) -> Array:
        mean, _ = model.project(train.x)[STATE]
        return jnp.log(root_mean_square(train.y[STATE] - mean, train.weight[STATE]))

    found = map_runs(log_spread, models, train)
    return eqx.tree_at(lambda m: m.tasks[STATE].head.log_sigma_obs, models, found)


def heads_too(
    model: Model, data: Data, hyper: Hyper, data_scale: float | Array, *, objective: Objective
) -> Array:
    """An arm's objective with the weights of its heads penalised like those of the backbone."""
    weights = sum(jnp.sum(task.belief.mu**2) for task in model.tasks.values())
    rest = objective(model, data, hyper, data_scale)
    return rest + 0.5 * hyper[MEANS_L2] * weights


def selected(arm: str, corpus: str, **changes: Any) -> dict[str, float]:
    """An arm on all backbones, one chosen at each seed; of the state its noise and precision."""
    protocol = replace(READING, **changes)
    rows = []
    for backbone in PAPER_BACKBONES:
        job = make_job(corpus, arm, backbone, protocol)
        for seed, (row,) in execute(job, protocol).rows.items():
            names = {"corpus": corpus, "arm": arm, "backbone": backbone, "seed": seed}
            rows.append({**row, **names})
    best = select(pd.DataFrame(rows))
    found = {m: float(best[m].mean()) for m in METRICS}
    if arm == "scroll-diag":
        found["sigma_obs"] = float(best["sigma_obs"].mean())
        found["log10_alpha"] = float(np.log10(best["alpha_state"].median()))
    return found


def missed(corpus: str, backbone: str, **changes: Any) -> dict[str, float]:
    """By how much a fit at targets times eight misses the mapped one, in nats, and which share
    of that each remedy takes away."""
    protocol = replace(READING, **changes)
    job = make_job(corpus, equivariance.NAME, backbone, protocol, seeds=SEEDS)
    gaps: dict[str, list[float]] = {}
    for rows in execute(job, protocol).rows.values():
        totals = {}
        for row in rows:
            setting = json.loads(row["setting"])
            nll = sum(row[m] for m in METRICS[:3]) - math.log(setting["factor"])
            totals[setting["variant"], setting["factor"]] = nll
        for (variant, factor), total in totals.items():
            if factor == equivariance.UP:
                gap = total - totals[equivariance.COLD, 1.0]
                gaps.setdefault(variant, []).append(gap)
    mean = {variant: float(np.mean(values)) for variant, values in gaps.items()}
    cold = mean.pop(equivariance.COLD)
    shares = {variant: 100.0 * (1.0 - gap / cold) for variant, gap in mean.items()}
    return {"gap": cold, **shares}


def measure(arm: str, backbone: str, corpus: str = "lorenz63", **changes: Any) -> dict[str, float]:
    protocol = replace(READING, **changes)
    rows = execute(make_job(corpus, arm, backbone, protocol, seeds=SEEDS), protocol).rows
    return {m: float(np.mean([r[0][m] for r in rows.values()])) for m in METRICS}


def shown(record: Record, metrics: Sequence[str]) -> str:
    return " / ".join(f"{record[m]:.3f}" for m in metrics)


def as_table(records: list[Record], choice: str) -> str:
    """The readings of one choice as Markdown: a line a reading, a column an arm and corpus."""
    told = [r for r in records if r["choice"] == choice]
    columns = {(r["arm"], r.get("corpus")): r for r in told}
    heads = [arm + (f" on {corpus}" if corpus else "") for arm, corpus in columns]
    lines = [["", *heads], ["---"] * (len(heads) + 1)]
    cells = {(r["reading"], r["arm"], r.get("corpus")): shown(r, METRICS[:4]) for r in told}
    for reading in dict.fromkeys(r["reading"] for r in told):
        lines.append([reading, *(cells[reading, arm, corpus] for arm, corpus in columns)])
    papers = [r.get("paper") for r in columns.values()]
    lines.append(["paper", *(shown(p, METRICS[:4]) if p else "" for p in papers)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_gaps(records: list[Record], choice: str) -> str:
    """The readings of a probe of scale as Markdown: the gap, and the shares that remedies take."""
    told = [r for r in records if r["choice"] == choice]
    remedies = [name for name in told[0] if name not in ("choice", "reading", "gap")]
    lines = [["", "gap", *remedies], ["---"] * (len(remedies) + 2)]
    lines += [[r["reading"], f"{r['gap']:.3f}", *(f"{r[k]:.0f}" for k in remedies)] for r in told]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def held(
    reading: str, arm: str, ours: dict[str, float], corpus: str = "lorenz63", /, **names: str
) -> Record:
    """A reading's figures beside those that the paper has for the arm."""
    paper = published.table("full").set_index(["corpus", "arm"]).loc[(corpus, arm)]
    theirs = {m: float(paper[m]) for m in METRICS}
    return {"reading": reading, "arm": arm, **names, **ours, "paper": theirs}


def penalties(steps: int) -> Iterator[Record]:
    for arm, backbone in POINT_ARMS.items():
        for words, factor in PENALTIES.items():
            ours = measure(arm, backbone, penalty_beside_means=factor, steps=steps)
            yield held(words, arm, ours)
        objective = partial(heads_too, objective=ARMS[arm].objective)
        heavy = register(replace(ARMS[arm], name=f"open-heads-{arm}", objective=objective))
        ours = measure(heavy.name, backbone, penalty_beside_means=1.0, steps=steps)
        yield held("as written, on the heads' weights too", arm, ours)


def links(steps: int) -> Iterator[Record]:
    for link, offset in itertools.product(LINKS, (False, True)):
        words = f"{link} with{'' if offset else 'out'} an offset"
        heads = partial(linked_heads, link=link, offset=offset)
        made = register(Arm(f"open-{link}-{offset}", words, heads=heads, objective=summed_nll))
        yield held(words, "mle-sigma-ce", measure(made.name, "tanh+ln", steps=steps))


def point_sds(steps: int) -> Iterator[Record]:
    arm = "map-probit"
    made = register(replace(ARMS[arm], name=f"open-{arm}", finish=training_spread))
    yield held("training residuals", arm, measure(made.name, "tanh", steps=steps))


def starts(steps: int) -> Iterator[Record]:
    for words, changes in STARTS.items():
        for corpus, arm in START_ARMS:
            ours = selected(arm, corpus, steps=steps, **changes)
            yield held(words, arm, ours, corpus, corpus=corpus)


def patiences(steps: int) -> Iterator[Record]:
    for patience in PATIENCE:
        for arm, backbone in PATIENCE_ARMS.items():
            ours = measure(arm, backbone, patience=patience, steps=steps)
            yield held(f"{patience} scores", arm, ours)


def scalings(steps: int) -> Iterator[Record]:
    for words, (corpus, backbone, changes) in SCALED.items():
        yield {"reading": words, **missed(corpus, backbone, steps=steps, **changes)}


def clips(steps: int) -> Iterator[Record]:
    for words, changes in CLIPS.items():
        for arm, backbone in CLIP_ARMS.items():
            ours = measure(arm, backbone, steps=steps, **changes)
            yield held(words, arm, ours, corpus="lorenz63")
            # In units of the target's sd, for which the paper prints no table.
            ours = measure(arm, backbone, "lorenz63-std", steps=steps, **changes)
            yield {"reading": words, "arm": f"{arm}, standardised", **ours}
        for arm in ("scroll-diag", "scroll-full"):
            ours = selected(arm, "pm25", steps=steps, **changes)
            yield held(words, arm, ours, "pm25", corpus="pm25")


def clipped_scalings(steps: int) -> Iterator[Record]:
    for words, changes in CLIPS.items():
        yield {"reading": words, **missed("lorenz63", "tanh+ln", steps=steps, **changes)}


def limits_of_means(steps: int) -> Iterator[Record]:
    """Whether a limit of 10,000 acts on means of losses, weighted by up to 30 in a grid.

    Two limits are one program, whose figures are the same to the last digit if neither acts.
    """
    for limit in (300.0, 1e6):
        for arm, backbone in POINT_ARMS.items():
            ours = measure(arm, backbone, "ou~1", steps=steps, clip=limit)
            yield held(f"clipped at {limit:,.0f}", arm, ours, "ou", corpus="ou~1")


CHOICES: dict[str, Callable[[int], Iterator[Record]]] = {
    "penalty beside mean losses": penalties,
    "link of the sd head": links,
    "sd of a point estimate": point_sds,
    "starting values": starts,
    "patience": patiences,
    SCALES: scalings,
    CLIPPED: clips,
    CLIPPED_SCALES: clipped_scalings,
    "clipped gradients of means": limits_of_means,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", type=Path, help="print the tables of a file and stop")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--steps", type=int, default=PROTOCOL.steps)
    parser.add_argument("--only", choices=CHOICES, help="measure one choice, keep the others")
    options = parser.parse_args()
    if options.show is not None:
        records = json.loads(options.show.read_text())["records"]
        known = {record["choice"] for record in records}
        for choice in ("penalty beside mean losses", "starting values", "patience", CLIPPED):
            if choice in known:
                print(f"{choice}\n\n{as_table(records, choice)}\n")
        for choice in (SCALES, CLIPPED_SCALES):
            if choice in known:
                print(f"{choice}\n\n{as_gaps(records, choice)}\n")
        return
    found: list[Record] = []
    if options.only is not None:
        known = json.loads(options.out.read_text())["records"]
        found = [record for record in known if record["choice"] != options.only]
    for choice in [options.only] if options.only else CHOICES:
        for record in CHOICES[choice](options.steps):
            found.append({"choice": choice, **record})
            figures = "  ".join(f"{k} {v:.3f}" for k, v in record.items() if isinstance(v, float))
            print(f"{choice}: {record['reading']}, {record.get('arm', '')}: {figures}", flush=True)
            content = {"environment": environment(), "seeds": SEEDS, "records": found}
            options.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
