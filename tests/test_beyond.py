"""`scrollmt reproduce beyond`: computed once, resumed, and written from records."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel
from typer.testing import CliRunner

from scrollmt.cli import app
from scrollmt.paper.arena import archive
from scrollmt.paper.arms import ARMS, Fold, Forecasts, OwnArm
from scrollmt.paper.beyond import STUDIES
from scrollmt.paper.beyond.base import lean, with_selections
from scrollmt.paper.beyond.comparators_page import page, paired
from scrollmt.paper.protocol import PROTOCOL
from tiny_jobs import registered

RUN = CliRunner()
STUDY = STUDIES["comparators"]
SMALL = [
    *("reproduce", "beyond", "--study", "comparators", "--corpora", "ou", "--backbones", "tanh"),
    *("--seeds", "2", "--steps", "20", "--windows", "200", "--quiet"),
]
ARMS_HERE = ["--arms", "scroll-diag,pcgrad-probit"]


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("beyond")
    result = RUN.invoke(app, [*SMALL, *ARMS_HERE, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "4 runs computed" in result.output
    return out


@pytest.mark.slow
def test_a_study_writes_lean_records_and_a_page(reproduced: Path) -> None:
    frame = archive.load(reproduced / "beyond" / "comparators")
    assert set(frame["arm"]) == {"scroll-diag", "pcgrad-probit"}
    assert set(frame["corpus"]) == {"ou"}
    assert "mean_weight" not in frame
    text = (reproduced / "comparators.md").read_text()
    for said in (
        "# Comparators",
        "| pcgrad-probit |",
        "OU, better than scroll-diag:",
        "Seeds: OU 2",
    ):
        assert said in text, said
    assert "OU, better than scroll-full: not run." in text


@pytest.mark.slow
def test_what_is_recorded_is_not_computed_again(reproduced: Path) -> None:
    more = ["--arms", "scroll-diag,pcgrad-probit,upgrad-probit", "--out", str(reproduced)]
    result = RUN.invoke(app, [*SMALL, *more])
    assert result.exit_code == 0, result.output
    assert "2 runs computed" in result.output


@pytest.mark.slow
def test_the_page_comes_from_records_alone(reproduced: Path, tmp_path: Path) -> None:
    committed = reproduced / "beyond" / "comparators"
    result = RUN.invoke(app, [*SMALL, "--from", str(committed), "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    again = (tmp_path / "comparators.md").read_text()
    assert "computed" not in result.output
    assert again.split("## ")[2:] == (reproduced / "comparators.md").read_text().split("## ")[2:]


def no_forecast(fold: Fold, setting: object) -> Forecasts:
    raise AssertionError("an arm without its package must not be asked")


@pytest.mark.slow
def test_an_arm_without_its_package_is_skipped_and_named(tmp_path: Path) -> None:
    absent = OwnArm("peer-vbll", "absent", forecast=no_forecast, packages=("nowhere-to-be-found",))
    with registered(absent):
        options = ["--arms", "scroll-diag,peer-vbll", "--out", str(tmp_path)]
        result = RUN.invoke(app, [*SMALL, *options])
        assert STUDY.available(["peer-vbll"])[0] == []
    assert result.exit_code == 0, result.output
    assert "arm peer-vbll is skipped: nowhere-to-be-found not installed" in result.stderr
    page = (tmp_path / "comparators.md").read_text()
    assert "Not run: `peer-vbll` (nowhere-to-be-found not installed)." in page


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["beyond"], "--study: unknown name None; choose from comparators"),
        (["beyond", "--study", "nothing"], "--study: unknown name 'nothing'"),
        (["main", "--study", "comparators"], "--study belongs to `reproduce beyond`"),
        (["beyond", "--study", "comparators", "--arms", "frozen-alpha"], "unknown name"),
    ],
)
def test_bad_input_is_one_sentence(options: list[str], words: str, tmp_path: Path) -> None:
    result = RUN.invoke(app, ["reproduce", *options, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


# Jobs and pages, without training


def test_arms_that_select_from_others_have_no_jobs_of_their_own() -> None:
    names = ["random-1", "random-7", "random-49", "closed"]
    jobs = STUDY.jobs(PROTOCOL, ["ou", "pm25"], names, ["tanh"])
    assert [(j.corpus, j.arm) for j in jobs] == [
        *(("ou", "random-49"), ("ou", "closed")),
        *(("pm25", "random-49"), ("pm25", "closed")),
    ]
    everything = STUDY.jobs(PROTOCOL)
    assert {j.arm for j in everything} <= set(ARMS)
    assert not [j for j in everything if "~" in j.corpus]


def made(corpora: tuple[str, ...] = ("ou", "pm25"), seeds: int = 6) -> pd.DataFrame:
    """Records whose scores are known: three arms, two backbones, and a search over 49 settings."""
    rng = np.random.default_rng(0)
    rows = []
    for corpus in corpora:
        for arm, gain in (("scroll-diag", 0.0), ("elbo-diag", -0.5), ("random-49", 0.3)):
            for backbone in ("tanh", "relu"):
                for seed in range(seeds):
                    for place, setting in enumerate(
                        ARMS[arm].setting_texts() if arm in ARMS else ["{}"]
                    ):
                        nll = 1.0 + gain + 0.1 * rng.normal() + 0.001 * place
                        scores = {"reg_nll": nll, "evt_nll": 0.4 + 0.01 * rng.normal()}
                        scores |= {"ord_nll": 1.2 + 0.01 * rng.normal(), "reg_calerr": 0.01}
                        rows.append(
                            {
                                **{"corpus": corpus, "arm": arm, "backbone": backbone},
                                **{"seed": seed, "setting": setting, "valid_nats": nll},
                                **scores,
                                **{"evt_acc_pct": 90.0, "stop_reason": "patience"},
                                **{"seconds": 4.9, "device": "cpu", "mean_sd": 1.0},
                            }
                        )
    return pd.DataFrame(rows)


def test_paired_tests_are_those_of_scipy() -> None:
    rng = np.random.default_rng(1)
    a, b = (pd.Series(rng.normal(size=8), index=range(k, 8 + k)) for k in (0, 2))
    found = paired(a, b)
    both = range(2, 8)
    wanted = ttest_rel(a.loc[both], b.loc[both])
    assert found.count == 6
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-9)
    assert found.difference == pytest.approx((a.loc[both] - b.loc[both]).mean())


def test_the_page_says_where_a_peer_is_better_and_what_its_seeds_share() -> None:
    text = page(made(), STUDY.arms, {"peer-lmc": "gpytorch not installed"}, "scrollmt")
    assert "- OU, better than scroll-diag: elbo-diag on state (-0." in text
    ou, pm25 = text.split("## PM2.5")
    assert "share one split" in pm25
    assert "share one split" not in ou
    rows = [line.split(" | ")[0] for line in ou.splitlines() if line.startswith("| ")]
    assert rows.index("| scroll-diag") < rows.index("| elbo-diag") < rows.index("| random-1")
    assert "| 6 |" in ou
    routing = text.split("## Routing by belief")[1]
    assert "| OU | elbo |" in routing
    assert "random" not in routing


def test_lean_records_give_the_same_page_as_all_of_them() -> None:
    frame = made()
    short = lean(frame)
    assert len(short) < len(frame) / 5
    assert "mean_sd" not in short
    assert page(short, STUDY.arms, {}, "x") == page(frame, STUDY.arms, {}, "x")


def test_a_smaller_search_is_selected_from_the_runs_of_the_largest() -> None:
    frame = with_selections(made(("ou",), seeds=1))
    one, seven = (frame[frame["arm"] == f"random-{k}"] for k in (1, 7))
    assert len(one) == 2
    assert len(seven) == 14
    # A run's share of the job's seconds, whichever arm selects it.
    text = page(made(("ou",)), STUDY.arms, {}, "x")
    lines = {line.split(" | ")[0]: line for line in text.split("**NLL less")[0].splitlines()}
    assert lines["| random-7"].endswith("| 14 | 0.1 |")
    assert lines["| random-49"].endswith("| 98 | 0.1 |")
