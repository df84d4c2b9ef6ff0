"""Laws in original units: against SciPy's own transformed laws, and by change of variables."""

from itertools import pairwise

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.integrate import quad

from scrollmt.laws import EventLaw, GaussianLaw, mix
from scrollmt.laws.transformed import TransformedLaw, original_units
from scrollmt.observables import at_lead, over_window
from scrollmt.transforms import Transform

LAW = GaussianLaw(mean=[1.2, -0.3, 4.0], sd=[0.5, 0.9, 0.1])
CHAINS = [("log1p",), ("log",), ("sqrt",), ("log1p", "sqrt"), ("sqrt", "log1p"), ("sqrt", "log")]


def one(steps: tuple[str, ...], row: int = 0) -> TransformedLaw:
    return TransformedLaw(LAW[row], Transform(steps))


def test_a_law_of_logarithms_is_log_normal() -> None:
    law = TransformedLaw(LAW, Transform(("log",)))
    truth = stats.lognorm(s=LAW.sd, scale=np.exp(LAW.mean))
    x = np.array([2.0, 0.4, 60.0])
    np.testing.assert_allclose(law.log_prob(x), truth.logpdf(x), rtol=1e-12)
    np.testing.assert_allclose(law.cdf(x), truth.cdf(x), rtol=1e-12)
    far = np.exp(LAW.mean + 12.0 * LAW.sd)
    np.testing.assert_allclose(law.sf(far), truth.sf(far), rtol=1e-9)
    np.testing.assert_array_equal(law.sf(-1.0), 1.0)
    np.testing.assert_allclose(law.median, truth.median(), rtol=1e-12)
    for p in (0.01, 0.5, 0.999):
        np.testing.assert_allclose(law.quantile(p), truth.ppf(p), rtol=1e-12)
    lower, upper = law.interval(0.9)
    np.testing.assert_allclose((lower, upper), (truth.ppf(0.05), truth.ppf(0.95)), rtol=1e-12)
    levels = np.array([0.1, 0.6])
    assert law.quantile(levels).shape == law.interval(levels)[0].shape == (3, 2)


@pytest.mark.parametrize("steps", CHAINS)
@pytest.mark.parametrize("row", [0, 1])
def test_density_cdf_and_quantiles_belong_to_one_law(steps: tuple[str, ...], row: int) -> None:
    """The density integrates to the cdf, and the cdf of a quantile is its level."""
    law = one(steps, row)
    levels = np.array([0.02, 0.3, 0.5, 0.9, 0.98])
    ends = law.quantile(levels)[0]
    assert np.all(np.diff(ends) > 0)
    for p, x in zip(levels, ends, strict=True):
        np.testing.assert_allclose(law.cdf(x)[0], p, rtol=1e-9)
    for a, b in pairwise(ends):
        breaks = [x for x in (0.0,) if a < x < b]
        mass, _ = quad(lambda x: np.exp(law.log_prob(x)[0]), a, b, points=breaks or None)
        np.testing.assert_allclose(mass, law.cdf(b)[0] - law.cdf(a)[0], rtol=1e-6)


@pytest.mark.parametrize("steps", CHAINS)
def test_the_cdf_keeps_its_order_where_data_cannot_be(steps: tuple[str, ...]) -> None:
    """A law may leave mass where T is not defined; its cdf must still run from 0 to 1."""
    x = np.concatenate([[-np.inf], np.linspace(-3, 3, 61), [np.inf]])
    law = one(steps, 1)[np.zeros(len(x), dtype=int)]
    cdf = law.cdf(x)
    assert np.all(np.diff(cdf) >= 0)
    assert (cdf[0], cdf[-1]) == (0.0, 1.0)
    assert not np.isnan(law.log_prob(x)).any()


def test_values_that_cannot_occur_have_no_density_and_missing_ones_none_known() -> None:
    law = one(("log1p",))[np.zeros(4, dtype=int)]
    x = np.array([-1.0, -2.0, np.nan, 0.0])
    density = law.log_prob(x)
    assert density[:2].tolist() == [-np.inf, -np.inf]
    assert np.isnan(density[2])
    assert np.isfinite(density[3])
    assert law.cdf(x)[:2].tolist() == [0.0, 0.0]
    assert np.isnan(law.cdf(x)[2])


def test_far_tails_stay_finite_in_nats() -> None:
    law = TransformedLaw(GaussianLaw([0.0], [1.0]), Transform(("log",)))
    x = np.exp(40.0)
    np.testing.assert_allclose(law.log_prob(x), -800.0 - 0.5 * np.log(2 * np.pi) - 40.0, rtol=1e-12)


def test_draws_follow_the_quantiles() -> None:
    """20,000 draws at the 19 levels 0.05 to 0.95: a share is off by 0.018 at most (5 sd)."""
    law = TransformedLaw(LAW, Transform(("log1p",)))
    draws = law.sample(jax.random.key(0), 20_000)
    assert draws.shape == (20_000, 3)
    levels = np.arange(1, 20) / 20
    shares = np.mean(draws[:, :, None] <= law.quantile(levels), axis=0)
    np.testing.assert_allclose(shares, np.broadcast_to(levels, (3, 19)), atol=0.018)


def test_the_index_stays_in_other_units() -> None:
    law = original_units(LAW._at_index(pd.Index([*"abc"])), at_lead("x").log())
    assert isinstance(law, TransformedLaw)
    assert list(law.to_frame().index) == [*"abc"]
    assert list(law[1:].to_frame().index) == [*"bc"]
    far = original_units(LAW._at_inputs(None, np.arange(3.0)), at_lead("x").log())
    assert list(far[1:].extrapolation) == [1.0, 2.0]  # type: ignore[arg-type]
    np.testing.assert_array_equal(law.sample(5, seed=2), law.sample(jax.random.key(2), 5))
    with pytest.raises(TypeError, match=r"law\.median, law\.quantile\(p\), law\.sample"):
        np.asarray(law)


def test_rows_frames_and_mixtures() -> None:
    law = TransformedLaw(LAW, Transform(("log1p",)))
    assert len(law) == 3
    assert len(law[1:]) == 2
    np.testing.assert_array_equal(law[2].median, law.median[2:])
    frame = law.to_frame(0.5)
    assert list(frame.columns) == ["median", "lower", "upper"]
    assert (frame["lower"] < frame["median"]).all()
    assert (frame["median"] < frame["upper"]).all()
    other = TransformedLaw(GaussianLaw([0.0] * 3, [1.0] * 3), Transform(("log1p",)))
    np.testing.assert_array_equal(mix([law, other]).law.median, mix([LAW, other.law]).median)
    with pytest.raises(ValueError, match=r"different transforms: \['log1p\(x\)', 'sqrt\(x\)'\]"):
        mix([law, TransformedLaw(LAW, Transform(("sqrt",)))])


def test_a_question_leads_back_to_original_units() -> None:
    law = original_units(LAW, at_lead("x").log1p())
    assert isinstance(law, TransformedLaw)
    np.testing.assert_allclose(law.median, np.expm1(LAW.mean), rtol=1e-12)
    # the extreme of a logarithm is the logarithm of the extreme; a mean of them is no log of x
    assert isinstance(original_units(LAW, over_window("x").log().max()), TransformedLaw)
    assert original_units(LAW, over_window("x").log().mean()) is LAW
    assert original_units(LAW, at_lead("x")) is LAW
    event = EventLaw(np.log([[0.3, 0.7]]))
    assert original_units(event, at_lead("x") > 2) is event
    with pytest.raises(ValueError, match="answered by the law of a number, got a EventLaw"):
        original_units(event, at_lead("x").log1p())
