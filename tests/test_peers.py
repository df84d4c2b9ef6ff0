"""The forecasters of others: one protocol, laws for every task, one arm of the arena each.

Peers of scikit-learn always run. Those of other packages run where these are installed; the summary
of pytest says which were left out.
"""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import Ridge

from scrollmt.heads import AbstractHead, Categorical, Count, Event, Gaussian, Ordinal
from scrollmt.laws import GaussianLaw, Law
from scrollmt.paper.arena.jobs import execute, make_job
from scrollmt.paper.arena.problems import problem
from scrollmt.paper.arena.records import Records
from scrollmt.paper.arena.sweep import compute
from scrollmt.paper.arms import ARMS, Fold, foreign, get_arm
from scrollmt.paper.arms.foreign import FOREIGN, forecast_foreign, packages_missing, question_of
from scrollmt.paper.peers import JOINT_PEERS, PEERS, peer
from scrollmt.paper.peers.protocol import (
    ClassCodes,
    Classes,
    JointPeer,
    Rows,
    Table,
    Value,
    forecast,
    forecast_jointly,
    summed_nll,
)
from scrollmt.paper.protocol import Protocol

PROTOCOL = Protocol(seeds=(1, 2), corpus_windows=200)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 3))
VALUE = 2.0 + X @ [1.0, -0.5, 0.0] + 0.5 * RNG.normal(size=240)
LABELS = {
    "level": np.where(np.arange(240) % 11 == 0, np.nan, VALUE),
    "alarm": (VALUE > 2.5).astype(int),
    "band": np.digitize(VALUE, [1.0, 2.0, 3.0]),
    "kind": np.argmax(X + 0.5 * RNG.normal(size=X.shape), axis=1),
}
TASKS: dict[str, AbstractHead] = {
    "level": Gaussian(),
    "alarm": Event(),
    "band": Ordinal(4),
    "kind": Categorical(3),
}
TRAIN, VALID, TEST = np.split(np.arange(240), [120, 180])


def table(rows: np.ndarray) -> Table:
    return Table(X[rows], {name: y[rows] for name, y in LABELS.items()})


def fold_of(tasks: Mapping[str, AbstractHead] = TASKS) -> Fold:
    parts = [table(rows) for rows in (TRAIN, VALID)]
    labels = [{name: part.Y[name] for name in tasks} for part in parts]
    return Fold(3, "none", tasks, X[TRAIN], labels[0], X[VALID], labels[1], X[TEST])


# The protocol


def rows_of(part: np.ndarray) -> Rows:
    return Rows(X[part], VALUE[part])


@pytest.mark.parametrize("refit", [False, True])
def test_validation_selects_and_a_refit_uses_both_parts(refit: bool) -> None:
    kind = peer("linear", "value")
    assert kind is not None
    parts = rows_of(TRAIN), rows_of(VALID)
    law, setting = forecast(kind, Value(), *parts, X[TEST], 0, refit=refit)
    sds = {}
    for one in kind.settings:
        scaled = (X - X[TRAIN].mean(0)) / X[TRAIN].std(0)
        ridge = Ridge(**one).fit(scaled[TRAIN], VALUE[TRAIN])
        sds[one["alpha"]] = np.sqrt(np.mean((VALUE[VALID] - ridge.predict(scaled[VALID])) ** 2))
    # With one sd, the smallest error has the lowest NLL.
    best = min(sds, key=lambda alpha: sds[alpha])
    assert setting == {"alpha": best}
    used = np.concatenate([TRAIN, VALID]) if refit else TRAIN
    scaled = (X - X[used].mean(0)) / X[used].std(0)
    mean = Ridge(alpha=best).fit(scaled[used], VALUE[used]).predict(scaled[TEST])
    expected = norm.logpdf(VALUE[TEST], mean, sds[best])
    np.testing.assert_allclose(law.log_prob(VALUE[TEST]), expected, rtol=1e-9)


class Shared(JointPeer):
    """Constant laws for all questions, with an offset that validation has to find."""

    settings: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"shift": -9.0},
        {"shift": 0.0},
        {"shift": 9.0},
    )

    def select(self, train: Table, valid: Table) -> None:
        self.mean = {name: np.nanmean(y) + self.setting["shift"] for name, y in train.Y.items()}

    def laws(self, X: np.ndarray) -> dict[str, Law]:
        return {
            name: GaussianLaw(np.full(len(X), mean), np.ones(len(X)))
            for name, mean in self.mean.items()
        }


def test_a_joint_peer_is_selected_by_its_summed_nll_without_missing_labels() -> None:
    parts = [Table(part.X, {"level": part.Y["level"]}) for part in map(table, (TRAIN, VALID))]
    assert np.isnan(parts[1].Y["level"]).any()
    train, valid = parts
    laws, setting = forecast_jointly(Shared, {"level": Value()}, train, valid, X[TEST], 0)
    assert setting == {"shift": 0.0}
    known = valid.rows("level").y
    mean = np.nanmean(train.Y["level"])
    law = GaussianLaw(np.full(len(VALID), mean), np.ones(len(VALID)))
    expected = -norm.logpdf(known, mean, 1.0).mean()
    assert summed_nll({"level": law}, valid.Y) == pytest.approx(expected, rel=1e-12)
    assert len(laws["level"]) == len(TEST)


def test_a_task_is_asked_as_its_head_says() -> None:
    labels = np.arange(4.0)
    assert question_of("level", Gaussian(), labels) == Value()
    assert question_of("alarm", Event(), labels) == Classes(2)
    assert question_of("band", Ordinal(4), labels) == Classes(4)
    assert question_of("kind", Categorical(3), labels) == Classes(3, ordered=False)
    for head in (Event(), Ordinal(4), Categorical(3)):
        asked = question_of("task", head, labels)
        assert isinstance(asked, Classes)
        law = ClassCodes(asked, np.arange(asked.count)).law(np.ones((5, asked.count)))
        lines = np.zeros(5 if head.rows == 1 else (5, head.rows))
        assert type(law) is type(head.law(lines, lines))
    with pytest.raises(ValueError, match=r"task 'hits': .*Count\(\) has masses; compare it"):
        question_of("hits", Count(), labels)


# Every peer


def needs(packages: tuple[str, ...]) -> list[pytest.MarkDecorator]:
    found = foreign.versions(packages)
    lacking = [name for name, version in found.items() if version == foreign.NOT_INSTALLED]
    return [pytest.mark.skipif(bool(lacking), reason=f"{' and '.join(lacking)} not installed")]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=needs(FOREIGN[n].packages)) for n in FOREIGN]
)
@pytest.mark.filterwarnings("ignore")  # theirs are not ours
def test_a_foreign_arm_has_useful_laws_for_every_task(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("torch") is not None:
        # Two hundred rows are learned in fewer steps.
        monkeypatch.setattr("scrollmt.paper.peers.network.most_steps", lambda rows: 150)
        monkeypatch.setattr("scrollmt.paper.peers.multioutput.most_steps", lambda rows: 150)
    if importlib.util.find_spec("gpflow") is not None:
        monkeypatch.setattr("scrollmt.paper.peers.heterogeneous.MOST_STEPS", 150)
    fold = fold_of()
    found = forecast_foreign(name, fold, {})
    short = {task: TASKS[task] for task in ("level", "alarm")}
    again = [forecast_foreign(name, fold_of(short), {}).test for _ in range(2)]
    for part, laws in ((VALID, found.valid), (TEST, found.test)):
        assert [*laws] == [*TASKS]
        for task, law in laws.items():
            assert len(law) == len(part)
            y = LABELS[task][part]
            score = np.nanmean(-law.log_prob(y))
            known = LABELS[task][TRAIN][~np.isnan(LABELS[task][TRAIN])]
            if task == "level":
                blind = -norm.logpdf(y, known.mean(), known.std())
            else:
                blind = -np.log(np.bincount(known)[y] / len(known))
            assert score < np.nanmean(blind) - 0.05, task
    for task in short:
        # The same seed gives the same laws.
        first, second = (laws[task].log_prob(LABELS[task][TEST]) for laws in again)
        np.testing.assert_allclose(first, second, rtol=1e-6, atol=1e-9)
    for text in found.facts.values():
        assert isinstance(json.loads(str(text)), dict)


def test_every_arm_has_peers_that_exist() -> None:
    for name, behind in FOREIGN.items():
        arm = get_arm(name)
        assert arm.describe()["determinants"].keys() == {"revision", *behind.packages}
        if isinstance(behind.peers, str):
            assert behind.peers in JOINT_PEERS
        else:
            for kind, called in behind.peers.items():
                assert kind in PEERS[called]
    for where in [*JOINT_PEERS.values(), *(w for kinds in PEERS.values() for w in kinds.values())]:
        module, called = where.split(".")
        spec = importlib.util.find_spec(f"scrollmt.paper.peers.{module}")
        assert spec is not None
        assert f"class {called}(" in Path(str(spec.origin)).read_text()


# Parts of peers by independent means


@pytest.mark.filterwarnings("ignore")
def test_outputs_of_the_lmc_have_the_moments_that_gpytorch_gives() -> None:
    pytest.importorskip("gpytorch", reason="gpytorch not installed")
    torch: Any = pytest.importorskip("torch")
    from scrollmt.paper.peers.multioutput import Latents, Outputs, probit_probs

    torch.manual_seed(0)
    rows = torch.as_tensor(X, dtype=torch.float32)
    process = Latents(rows, latents=2, outputs=3).eval()
    with torch.no_grad():
        process.offset.copy_(torch.tensor([1.0, -2.0, 0.5]))
        theirs = process(rows[:20])
        ours = Outputs(process, rows[:20])
        for place in range(3):
            mean, var = ours.moments(place)
            expected = theirs.mean[:, place] + process.offset[place]
            np.testing.assert_allclose(mean, expected, atol=1e-4)
            np.testing.assert_allclose(var, theirs.variance[:, place], rtol=1e-2, atol=1e-3)
        draws = ours.draws(slice(1, 3), 20_000)
        for place in (1, 2):
            mean, var = ours.moments(place)
            np.testing.assert_allclose(draws[..., place - 1].var(0), var, rtol=0.1)
            np.testing.assert_allclose(draws[..., place - 1].mean(0), mean, atol=0.1)
        # The probability of a probit event with a Gaussian line, by draws of the line.
        events = norm.cdf(draws[..., 0].numpy()).mean(0)
        np.testing.assert_allclose(probit_probs(*ours.moments(1))[:, 1], events, atol=0.01)


@pytest.mark.filterwarnings("ignore")
def test_ordinal_masses_of_gpflow_are_those_of_a_normal_law() -> None:
    pytest.importorskip("gpflow", reason="gpflow not installed")
    from scrollmt.paper.peers.heterogeneous import OrdinalAnswer

    y = np.array([0, 0, 1, 1, 1, 2, 3, 3])
    answer = OrdinalAnswer(ClassCodes(Classes(4), y), y)
    mean, var = np.array([[-0.5], [0.3], [2.0]]), np.array([[0.2], [1.0], [0.01]])
    law = answer.law([(mean, var)])
    edges = np.sqrt(2.0) * norm.ppf([0.25, 0.625, 0.75])
    below = norm.cdf((edges - mean) / np.sqrt(1.0 + var))
    expected = np.diff(np.pad(below, ((0, 0), (1, 1)), constant_values=(0.0, 1.0)), axis=1)
    # GPflow moves its link by 1e-3 from 0 and 1.
    np.testing.assert_allclose(law.probs, expected, atol=2e-3)


# Packages that are not there


def test_arms_are_listed_without_their_packages() -> None:
    absent = {package for behind in FOREIGN.values() for package in behind.packages}
    absent |= {"laplace", "lightgbm", "tensorflow", "threadpoolctl"}
    program = f"""
import sys
for name in {sorted(absent)!r}:
    sys.modules[name] = None  # any import of it fails
import scrollmt, scrollmt.paper, scrollmt.paper.peers.protocol
from scrollmt.paper.arms import ARMS
print(sum(name.startswith("peer-") for name in ARMS))
"""
    # scikit-learn imports threadpoolctl itself, and scrollmt imports scikit-learn only where used.
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(FOREIGN)


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "peer-vbll"
    behind = foreign.Foreign("", FOREIGN[name].peers, ("scikit-learn", "no-such-package"))
    monkeypatch.setitem(FOREIGN, name, behind)
    assert packages_missing(name) == ["no-such-package"]
    job = make_job("ou", name, "none", PROTOCOL)
    wanted = r"^arm 'peer-vbll' needs no-such-package; install with `pip install .*\[peers\]`$"
    with pytest.raises(ImportError, match=wanted):
        execute(job)


# In the arena


def test_the_linear_peer_runs_through_the_arena(tmp_path: Path) -> None:
    job = make_job("ou", "peer-linear", "none", PROTOCOL)
    with Records(tmp_path / "records.sqlite") as records:
        assert compute([job], records, progress=False).computed == 2
        assert compute([job], records, progress=False).computed == 0
        frame = records.frame([job])
    assert [*frame["seed"]] == [1, 2]
    assert np.isfinite(frame[["reg_nll", "evt_nll", "ord_nll", "valid_nats"]]).all(axis=None)
    of = problem("ou", PROTOCOL)
    for _, row in frame.iterrows():
        alpha = json.loads(row["setting_state"])["alpha"]
        train, valid, test = (of.part(rows, 1.0) for rows in of.split(row["seed"]))
        centre, spread = train[0].mean(0), train[0].std(0)
        ridge = Ridge(alpha=alpha).fit((train[0] - centre) / spread, train[1]["state"])
        means = [ridge.predict((part[0] - centre) / spread) for part in (valid, test)]
        sd = np.sqrt(np.mean((valid[1]["state"] - means[0]) ** 2))
        expected = -norm.logpdf(test[1]["state"], means[1], sd).mean()
        assert row["reg_nll"] == pytest.approx(expected, rel=1e-6)
    assert ARMS["peer-linear"].describe()["forecast"].endswith("forecast_foreign(peer-linear)")
