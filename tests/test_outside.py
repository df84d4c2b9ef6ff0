"""A belief, a head, a backbone, an arm and a corpus, written against the public contracts alone.

Nothing here may need an edit of scrollmt itself: whoever writes such a part has only `pip install`.
All of them go through one model, its folder, its report and an arena of two seeds.
`test_own_belief.py` and `test_sources.py` use these parts in wrong ways.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.stats import expon, norm, poisson
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor, Ridge

from scrollmt import Count, Event, Forecaster, Gaussian, Ordinal, load
from scrollmt.beliefs import AbstractBelief, Full, LowRank, Rows, Start
from scrollmt.heads import AbstractHead, AbstractQuadrature
from scrollmt.laws import CountLaw, EventLaw, GaussianLaw, OrdinalLaw
from scrollmt.paper.arena import archive
from scrollmt.paper.arena.jobs import execute, make_job
from scrollmt.paper.arena.problems import problem
from scrollmt.paper.arena.records import Records
from scrollmt.paper.arena.sources import SOURCES, Asked, Source, register_corpus
from scrollmt.paper.arena.sweep import compute
from scrollmt.paper.arms import ARMS, Fold, Forecasts, OwnArm, register
from scrollmt.paper.protocol import Protocol
from scrollmt.paper.tables.by_task import score_table
from scrollmt.report import write_report
from scrollmt.testing import check_head
from small import TINY
from tiny_jobs import quick_compiler

pytestmark = pytest.mark.slow

PROTOCOL = Protocol(seeds=(1, 2), steps=40, eval_every=20, corpus_windows=200)
NAMES = ["storm", "wind", "band", "alarms", "repair"]


class Blocks(AbstractBelief):
    """Features in groups with a common shift each: roots of a shape that scrollmt does not have.

    The covariance is a multiple of the identity, plus for each of two signs a group of rows.
    """

    mu: Float[Array, " H"]
    log_sd: Float[Array, ""]
    shifts: Float[Array, "2 P H"]
    groups: int = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        size: int,
        key: PRNGKeyArray,
        *,
        rows: int,
        cov_floor: float,
        start: Start = Start(),  # noqa: B008
        groups: int = 3,
    ) -> Self:
        mu_key, key = jax.random.split(key)
        mu = start.mu * jax.random.normal(mu_key, (size,)) / np.sqrt(size)
        shifts = 0.1 * jax.random.normal(key, (2, groups, size))
        return cls(mu, jnp.asarray(start.log_sd), shifts, groups)

    def rows(self) -> Rows:
        variance = jnp.exp(2.0 * self.log_sd) + jnp.zeros_like(self.mu)
        return Rows(self.mu[None], variance[None], self.shifts)

    def cov(self) -> Float[Array, "H H"]:
        ridge = jnp.exp(2.0 * self.log_sd) * jnp.eye(self.mu.shape[0], dtype=self.mu.dtype)
        return ridge + jnp.einsum("gfi,gfj->ij", self.shifts, self.shifts)

    def overlap(self, prior_precision: Float[Array, ""]) -> Float[Array, ""]:
        total = self.cov() + jnp.eye(self.mu.shape[0]) / prior_precision
        logpdf: Any = jax.scipy.stats.multivariate_normal.logpdf
        return -logpdf(self.mu, jnp.zeros_like(self.mu), total)

    def scaled(self, factor: float, *, scale_floor: bool) -> Self:
        return type(self)(
            self.mu * factor, self.log_sd + jnp.log(factor), self.shifts * factor, self.groups
        )


class Waiting(AbstractQuadrature):
    """Exponential waiting times with a log mean on the latent line."""

    log_mean: Float[Array, ""]

    def __init__(self) -> None:
        self.log_mean = jnp.zeros(())

    @property
    def missing_fill(self) -> float:
        return 1.0

    def log_likelihood(self, y: Array, a: Array) -> Array:
        return -(self.log_mean + a) - y * jnp.exp(-(self.log_mean + a))


class Layer(eqx.Module):
    """A backbone, made anew for every member from a key."""

    dense: eqx.nn.Linear

    def __init__(self, features: int, *, key: PRNGKeyArray):
        self.dense = eqx.nn.Linear(3, features, key=key)

    def __call__(self, x: Float[Array, " D"]) -> Float[Array, " H"]:
        return jnp.sin(self.dense(x))


def tasks() -> dict[str, AbstractHead]:
    return {
        "storm": Event(),
        "wind": Gaussian(),
        "band": Ordinal(3),
        "alarms": Count(),
        "repair": Waiting(),
    }


def station(asked: Asked) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(asked.seed)
    X = rng.normal(size=(asked.windows, 3))
    warm, windy = X[:, 0] + 0.5 * X[:, 1], X[:, 2] - 0.5 * X[:, 0]
    wind = windy + 0.3 * rng.normal(size=len(X))
    return X, {
        "wind": wind,
        "storm": (wind > 1.0).astype(int),
        "band": np.digitize(warm + 0.3 * rng.normal(size=len(X)), [-0.5, 0.5]),
        "alarms": rng.poisson(np.exp(0.5 * windy)),
        "repair": rng.exponential(np.exp(0.5 * warm)),
    }


def linear_laws(fold: Fold, alpha: float, X: np.ndarray) -> dict[str, Any]:
    """Linear models of scikit-learn; a ridge has the spread of its validation residuals."""
    laws: dict[str, Any] = {}
    none = np.zeros(len(X))
    for name, head in fold.tasks.items():
        y = fold.Y_train[name]
        if isinstance(head, Gaussian):
            ridge = Ridge(alpha=alpha).fit(fold.X_train, y)
            sd = np.std(fold.Y_valid[name] - ridge.predict(fold.X_valid))
            laws[name] = GaussianLaw(ridge.predict(X), none + sd)
        elif isinstance(head, Count):
            rate = PoissonRegressor(alpha=alpha / len(y)).fit(fold.X_train, y).predict(X)
            laws[name] = CountLaw(np.log(rate), none)
        elif isinstance(head, Waiting):
            mean = GammaRegressor(alpha=alpha / len(y)).fit(fold.X_train, y).predict(X)
            laws[name] = Waiting().law(np.log(mean), none)
        else:
            classes = LogisticRegression(C=1.0 / alpha).fit(fold.X_train, y)
            kind = EventLaw if isinstance(head, Event) else OrdinalLaw
            laws[name] = kind(classes.predict_log_proba(X))
    return laws


def linear(fold: Fold, setting: Mapping[str, float]) -> Forecasts:
    alpha = setting["alpha"]
    valid, test = (linear_laws(fold, alpha, X) for X in (fold.X_valid, fold.X_test))
    return Forecasts(valid, test, {"coefficients": 4.0})


# One model of all parts


X, Y = station(Asked(lead=1.0, seed=0, windows=60))
NEW, NEW_Y = station(Asked(lead=1.0, seed=1, windows=13))


@pytest.fixture(scope="module")
def fitted() -> Forecaster:
    missing = np.where(np.arange(60) % 7 == 0, np.nan, Y["repair"])
    beliefs: dict[str, Any] = {"wind": Blocks.of(groups=2), "storm": LowRank.of(rank=2)}
    model = Forecaster(
        tasks(),
        belief=beliefs | {"band": "full", "alarms": "diag", "repair": Blocks},
        backbone=partial(Layer, 4),
        ensemble=2,
        preset=TINY,
    )
    return model.fit(X, Y | {"repair": missing})


@pytest.mark.slow
def test_parts_of_ones_own_fit_beside_those_of_the_package(fitted: Forecaster) -> None:
    check_head(Waiting(), [0.01, 0.7, 1.0, 12.0])
    found = {name: type(task.belief) for name, task in fitted.model_.tasks.items()}
    assert (found["wind"], found["storm"], found["band"]) == (Blocks, LowRank, Full)
    assert found["repair"] is Blocks
    assert isinstance(fitted.model_.tasks["repair"].head, Waiting)
    backbones: list[Any] = [member.backbone for member in fitted.members_]
    first, second = (one.dense.weight for one in backbones)
    assert not np.array_equal(first, second)
    assert np.isfinite(fitted.evaluate(NEW, NEW_Y)["nll"]).all()


@pytest.mark.slow
def test_they_are_saved_loaded_and_reported(fitted: Forecaster, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    back = load(
        tmp_path / "model", custom=[Blocks, Waiting], backbone=Layer(4, key=jax.random.key(9))
    )
    laws, again = fitted.predict(NEW), back.predict(NEW)
    for name in NAMES:
        np.testing.assert_array_equal(
            laws[name].log_prob(NEW_Y[name]), again[name].log_prob(NEW_Y[name]), err_msg=name
        )
    page = Path(write_report(back, NEW, NEW_Y, path=tmp_path / "report.html")).read_text()
    assert "Blocks (wind, repair)" in page
    assert "low-rank (storm): low-rank plus diagonal covariance" in page
    assert "Waiting" in page


# An arena of their arm and ours on their corpus


@pytest.fixture
def outside() -> Iterator[OwnArm]:
    """Both registered for a test; a user registers once, at the top of a module."""
    register_corpus(Source("station", tasks, station, determinants={"revision": 1}))
    settings = ({"alpha": 1.0}, {"alpha": 1e6})
    yield register(OwnArm("linear", "linear models of scikit-learn", linear, settings=settings))
    del ARMS["linear"], SOURCES["station"]


@pytest.mark.slow
def test_an_arena_of_our_arm_and_theirs_on_their_corpus(
    outside: OwnArm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [
        make_job("station", "scroll-diag", "tanh", PROTOCOL),
        make_job("station", "linear", "none", PROTOCOL),
    ]

    def interrupted(job):
        if job.arm == "linear":
            raise KeyboardInterrupt
        return execute(job)

    path = tmp_path / "records.sqlite"
    with quick_compiler(), Records(path) as records, pytest.raises(KeyboardInterrupt):
        compute(jobs, records, execute=interrupted, progress=False)
    with Records(path) as records:
        assert len(records) == 2  # our arm's two seeds are there
        done = compute(jobs, records, progress=False)
        assert (done.recorded, done.computed) == (2, 2)
        assert compute(jobs, records, progress=False).computed == 0
        frame = records.frame(jobs)
        records.export(tmp_path / "export", jobs)

    # One row a seed and setting, with the metrics that suit each task.
    assert [*frame["arm"]] == ["linear"] * 4 + ["scroll-diag"] * 2
    for name in NAMES:
        assert np.isfinite(frame[f"{name}.nll"]).all()
    assert np.isfinite(frame["wind.crps"]).all()
    assert np.isfinite(frame[["storm.brier", "band.rps", "alarms.rmse"]]).all(axis=None)
    assert frame["coefficients"].notna().sum() == 4
    sums = frame[[f"valid.{name}.nll" for name in NAMES]].sum(axis=1)
    np.testing.assert_allclose(frame["valid_nats"], sums, rtol=1e-12)

    # Their scores are those that SciPy gives.
    row = frame.iloc[0]
    assert (row["seed"], row["setting"]) == (1, '{"alpha": 1.0}')
    of = problem("station", PROTOCOL)
    train, valid, test = (of.part(rows, 1.0) for rows in of.split(1))
    laws = linear_laws(Fold(1, "none", tasks(), *train, *valid, test[0]), 1.0, test[0])
    expected = -norm.logpdf(test[1]["wind"], laws["wind"].mean, laws["wind"].sd).mean()
    assert row["wind.nll"] == pytest.approx(expected, rel=1e-9)
    expected = -poisson.logpmf(test[1]["alarms"], laws["alarms"].mean).mean()
    assert row["alarms.nll"] == pytest.approx(expected, rel=1e-6)
    scale = np.exp(laws["repair"].latent_mean)
    expected = -expon.logpdf(test[1]["repair"], scale=scale).mean()
    assert row["repair.nll"] == pytest.approx(expected, rel=1e-5)

    # What is exported has all columns, whatever the tasks.
    assert {*archive.load(tmp_path / "export")} == {*frame}

    # A table by task, in which validation has selected the sensible penalty.
    print(score_table(frame, "station").markdown())
    printed = capsys.readouterr().out
    assert all(f"{name}: nll" in printed for name in NAMES)
    assert "| scroll-diag |" in printed
    sensible = frame[frame["setting"] == '{"alpha": 1.0}']["wind.nll"]
    assert "| linear | " in printed
    assert f"{sensible.mean():.3f}" in printed
