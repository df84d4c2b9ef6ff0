"""The paper's figures: data files that its LaTeX can read, and pictures drawn from these files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scrollmt.paper.tables import figures

LEADS = [0.1, 0.5, 2.0]


@pytest.fixture
def ou() -> figures.Columns:
    seeds = np.array([[0.4, 0.8, 1.0], [0.5, 0.7, 1.1], [0.45, 0.9, 0.9]])
    return figures.over_leads(LEADS, seeds, [0.43, 0.8, 0.99], sigma_obs=0.5 * seeds)


@pytest.fixture
def lorenz() -> figures.Columns:
    return figures.over_leads(
        LEADS, [[1.0, 2.0, 3.0]], [0.9, 2.1, 3.2], p10=[0.5, 1.0, 2.0], p90=[2.0, 4.0, 6.0]
    )


@pytest.fixture
def cloud() -> figures.Columns:
    rng = np.random.default_rng(0)
    truth = np.exp(rng.normal(size=1000))
    predicted = {"diag": 1.1 * truth, "full": truth, "closed": np.full(1000, 2.0)}
    return figures.per_state(truth, predicted, points=60)


def test_columns_over_leads_are_means_and_one_sd_over_seeds(ou: figures.Columns) -> None:
    assert set(figures.READ[figures.OU]) <= set(ou)
    np.testing.assert_allclose(ou["pred_sd_mean"], [0.45, 0.8, 1.0])
    np.testing.assert_allclose(ou["pred_sd_hi"] - ou["pred_sd_mean"], [0.05, 0.1, 0.1])
    np.testing.assert_allclose(ou["pred_sd_mean"] - ou["pred_sd_lo"], [0.05, 0.1, 0.1])
    np.testing.assert_allclose(ou["sigma_obs"], 0.5 * ou["pred_sd_mean"])


def test_the_cloud_is_thinned_evenly_by_the_rank_of_the_truth(cloud: figures.Columns) -> None:
    assert list(cloud) == list(figures.READ[figures.CLOUD])
    assert len(cloud["vstar"]) == 60
    assert (np.diff(cloud["vstar"]) > 0).all()
    np.testing.assert_allclose(cloud["v_diag"], 1.1 * cloud["vstar"])
    everything = np.sort(np.exp(np.random.default_rng(0).normal(size=1000)))
    ranks = np.searchsorted(everything, cloud["vstar"])
    assert ranks[0] == 0
    assert ranks[-1] == 999
    assert set(np.diff(ranks)) <= {16, 17, 18}


def test_data_files_are_read_as_they_were_written(tmp_path: Path, ou: figures.Columns) -> None:
    path = figures.write_dat(tmp_path / "deep" / "x.dat", ou)
    lines = path.read_text().splitlines()
    assert lines[0].split(" ") == list(ou)
    assert len(lines) == 1 + len(LEADS)
    assert all(len(line.split(" ")) == len(ou) for line in lines)
    back = figures.read_dat(path)
    assert list(back) == list(ou)
    for name, values in ou.items():
        np.testing.assert_allclose(back[name], values, rtol=1e-5)


def test_each_figure_comes_as_data_svg_and_pdf(
    tmp_path: Path, ou: figures.Columns, lorenz: figures.Columns, cloud: figures.Columns
) -> None:
    columns = {figures.OU: ou, figures.LORENZ: lorenz, figures.CLOUD: cloud}
    paths = figures.draw(tmp_path / "a", columns)
    names = (figures.OU, figures.LORENZ, figures.CLOUD)
    assert [p.name for p in paths] == [f"{n}.{e}" for n in names for e in ("dat", "svg", "pdf")]
    again = figures.draw(tmp_path / "b", columns)
    for first, second in zip(paths, again, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name
    svg = (tmp_path / "a" / "perstate_lorenz.svg").read_text()
    for label in figures.ROUTES.values():
        assert label in svg
    assert (tmp_path / "a" / "sde_sigma_ou.pdf").read_bytes().startswith(b"%PDF")


def test_pictures_show_their_columns(ou: figures.Columns, lorenz: figures.Columns) -> None:
    ax = figures.picture(figures.OU, ou)
    handles, labels = ax.get_legend_handles_labels()
    assert labels == ["true sd", "predictive sd", "noise sd"]
    np.testing.assert_allclose(handles[0].get_ydata(), ou["sd_star"])
    np.testing.assert_allclose(handles[1][0].get_ydata(), ou["pred_sd_mean"])
    bars = np.array(handles[1][2][0].get_segments())[:, :, 1]
    np.testing.assert_allclose(bars.T, [ou["pred_sd_lo"], ou["pred_sd_hi"]])
    assert (
        "true sd over states"
        in figures.picture(figures.LORENZ, lorenz).get_legend_handles_labels()[1]
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [1.0, 2.0], "b": [1.0]}, r"one length.*\(2,\)"),
        ({}, "one length"),
        ({"a b": [1.0]}, "no spaces"),
        ({"a": [1.0, np.nan]}, "'a' is nan in row 1"),
    ],
)
def test_what_latex_cannot_read_is_refused(columns: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        figures.write_dat(tmp_path / "x.dat", columns)
    assert list(tmp_path.iterdir()) == []


def test_missing_columns_and_other_shapes_are_named(tmp_path: Path, ou: figures.Columns) -> None:
    with pytest.raises(ValueError, match=r"lacks the columns \['sd_p10', 'sd_p90'\]"):
        figures.draw(tmp_path, {figures.LORENZ: ou})
    with pytest.raises(ValueError, match=r"\(3,\), need \(seeds, 3\)"):
        figures.over_leads(LEADS, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"'diag' has shape \(2,\), true_var has \(3,\)"):
        figures.per_state([1.0, 2.0, 3.0], {"diag": [1.0, 2.0]})
    with pytest.raises(ValueError, match="no figure 'other'"):
        figures.picture("other", ou)
