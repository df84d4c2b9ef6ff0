"""Pictures show what the law says: positions of marks and bars, not only that they draw."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from scrollmt import plots
from scrollmt.predictive import GaussianLaw


@pytest.fixture
def law() -> GaussianLaw:
    return GaussianLaw(np.array([0.0, 1.0, -2.0]), np.array([1.0, 0.5, 2.0]))


def test_forecasts_draws_intervals_means_and_truth(law: GaussianLaw) -> None:
    ax = Figure().subplots()
    truth = np.array([0.1, 0.9, -3.0])
    assert plots.forecasts(law, truth, levels=(0.5, 0.9), ax=ax) is ax
    wide, narrow = (np.array(c.get_segments())[:, :, 1] for c in ax.collections)
    np.testing.assert_allclose(wide.T, law.interval(0.9))
    np.testing.assert_allclose(narrow.T, law.interval(0.5))
    mean, came_true = (line.get_ydata() for line in ax.lines)
    np.testing.assert_array_equal(mean, law.mean)
    np.testing.assert_array_equal(came_true, truth)


def test_variance_tracking_pairs_predicted_with_true(law: GaussianLaw) -> None:
    ax = Figure().subplots()
    truth = np.array([1.1, 0.3, 3.5])
    plots.variance_tracking(law, truth, ax=ax)
    points = ax.lines[-1]
    np.testing.assert_array_equal(points.get_xdata(), truth)
    np.testing.assert_array_equal(points.get_ydata(), law.var)
    assert f"{np.corrcoef(truth, law.var)[0, 1]:.2f}" in ax.get_title()


def test_variance_tracking_refuses_other_windows(law: GaussianLaw) -> None:
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        plots.variance_tracking(law, np.ones(2), ax=Figure().subplots())


def test_without_ax_the_current_one_is_used(law: GaussianLaw) -> None:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    assert plots.forecasts(law) is ax
    plt.close(figure)
