"""Backbones of one's own: windows as tables, found by name, and dropout in training alone."""

from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from scrollmt import Forecaster, Gaussian, load
from scrollmt.adapters import Layout, at_rest, in_training, takes_key, windowed
from scrollmt.inputs import calendar, lags
from scrollmt.model import Model
from scrollmt.observables import at_lead
from scrollmt.windows import Windowing, Windows
from small import STATE, assert_same, numbers, tiny
from small import windows as rows

# Windows as tables


def series(n: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    time = pd.date_range("2024-01-01", periods=n, freq="h")
    return pd.DataFrame({"a": rng.normal(size=n), "b": 10.0 + rng.normal(size=n)}, index=time)


def cut(*inputs: Any) -> Windows:
    asked = {"next": at_lead("a")}
    return Windowing(history=4, lead=1).cut(series(), asked, list(inputs))


class Table(eqx.Module):
    """Reads (T, C), and is not the same for other orders of the steps or of the columns."""

    weight: jax.Array

    def __init__(self, steps: int, *, key: Any):
        self.weight = 0.3 * jax.random.normal(key, (5, steps, 2))

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.sum(self.weight * x, axis=(1, 2)))


@pytest.mark.parametrize("steps", [None, 3, [1, 3, 0]])
def test_a_window_is_a_table_of_steps_oldest_first(steps: Any) -> None:
    windows = cut(lags("b", steps), lags("a", steps))
    read: Any = windowed(jnp.ravel, windows.recipe.layout)
    frame = series()
    back = [3, 2, 1, 0] if steps is None else [2, 1, 0] if steps == 3 else [3, 1, 0]
    for row in (0, 7):
        at = frame.index.get_loc(windows.t[row])
        want = frame[["b", "a"]].to_numpy()[[at - k for k in back]]
        found = read(jnp.asarray(windows.X[row], jnp.float32))
        np.testing.assert_array_equal(found, want.ravel().astype(np.float32))


def test_a_table_of_other_inputs_than_lags_of_the_same_steps_is_refused() -> None:
    with pytest.raises(ValueError, match=r"made of lags alone, and the inputs \['sin\(hour\)'"):
        _ = cut(lags("a"), calendar("hour")).recipe.layout
    with pytest.raises(ValueError, match=r"same steps.*'a': \[0, 1, 2, 3\], 'b': \[0, 1\]"):
        _ = cut(lags("a"), lags("b", 2)).recipe.layout


def test_columns_in_another_order_are_found_by_name(tmp_path: Path) -> None:
    windows = cut(lags("a"), lags("b"))
    make = windowed(partial(Table, 4), windows.recipe.layout)
    X, y = windows.X_frame(), windows.Y["next"]
    mixed = X[np.random.default_rng(1).permutation(X.columns)]
    assert list(mixed) != list(X)
    model, other = (tiny({"next": Gaussian()}, backbone=make).fit(x, y) for x in (X, mixed))
    assert list(other.feature_names_in_) == list(X)
    for fitted, new in ((model, X), (model, mixed), (other, X), (other, mixed)):
        assert_same(numbers(fitted, new), numbers(model, X))
    other.save(tmp_path / "tables")
    assert_same(numbers(load(tmp_path / "tables", backbone=make), X), numbers(model, X))
    # The order matters: a backbone that takes the inputs as they come learns something else.
    places = make.layout.order
    as_it_comes = windowed(partial(Table, 4), Layout(tuple(mixed), places))
    blind = tiny({"next": Gaussian()}, backbone=as_it_comes).fit(mixed, y)
    assert not np.array_equal(numbers(blind, X)["next.mean"], numbers(model, X)["next.mean"])


def test_inputs_that_are_not_those_of_the_layout_are_refused() -> None:
    windows = cut(lags("a"), lags("b"))
    model = tiny({"next": Gaussian()}, backbone=windowed(partial(Table, 4), windows.recipe.layout))
    X, y = windows.X_frame(), windows.Y["next"]
    with pytest.raises(ValueError, match=r"the backbone reads windows with the inputs \['a\[t-3\]"):
        model.fit(X.rename(columns={"a[t]": "c"}), y)
    with pytest.raises(ValueError, match=r"the layout has 8 inputs, from a\[t-3\] to b\[t\]"):
        model.fit(X.to_numpy()[:, :6], y)


def test_a_forecast_reads_a_series_with_a_backbone_over_tables() -> None:
    windows = cut(lags("a"), lags("b"))
    make = windowed(partial(Table, 4), windows.recipe.layout)
    model = Forecaster.for_windows(windows, backbone=make, preset=tiny().preset).fit(windows)
    newest: Any = model.forecast(series()).laws["next"]
    assert newest.mean.shape == (1,)
    at = windows.take(np.array([len(windows) - 1]))
    earlier: Any = model.forecast(series().iloc[:-1]).laws["next"]
    np.testing.assert_array_equal(earlier.mean, numbers(model, at)["next.mean"])


# Dropout


class Dropping(eqx.Module):
    layer: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, share: float = 0.5, *, key: Any):
        self.layer = eqx.nn.Linear(3, 40, key=key)
        self.dropout = eqx.nn.Dropout(share)

    def __call__(self, x: jax.Array, *, key: Any = None) -> jax.Array:
        return self.dropout(jnp.tanh(self.layer(x)), key=key)


class Keyless(eqx.Module):
    net: Dropping

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.net(x)


def test_every_window_of_a_step_drops_features_of_its_own_and_none_at_rest() -> None:
    net = Dropping(key=jax.random.key(0))
    model = Model(at_rest(net), {})
    x = jnp.ones((20, 3))
    whole = np.tanh(np.asarray(net.layer.weight).sum(axis=1) + np.asarray(net.layer.bias))
    np.testing.assert_allclose(model.features(x), np.tile(whole, (20, 1)), rtol=1e-5)
    first, same, second = (
        np.asarray(in_training(model, jax.random.key(seed)).features(x)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, same)
    for seen in (first, second):
        kept = seen != 0.0
        assert len(np.unique(kept, axis=0)) == 20
        np.testing.assert_allclose(seen[kept], np.tile(2.0 * whole, (20, 1))[kept], rtol=1e-5)
        # 800 draws at one half: outside of this once in a million keys.
        assert 0.41 < kept.mean() < 0.59
    assert (first != second).any()


@pytest.mark.slow
def test_dropout_is_on_in_training_and_off_in_answers(tmp_path: Path) -> None:
    X, Y = rows()
    fitted = {
        share: tiny(STATE, backbone=partial(Dropping, share)).fit(X, Y["state"])
        for share in (0.0, 0.5)
    }
    plain, dropping = (numbers(model, X[:8]) for model in fitted.values())
    assert not np.allclose(plain["state.mean"], dropping["state.mean"])
    model = fitted[0.5]
    assert_same(numbers(model, X[:8]), dropping)
    assert model.model_.backbone.dropout.inference  # type: ignore[attr-defined]
    # The same draws again, by the same seed.
    again = tiny(STATE, backbone=partial(Dropping, 0.5)).fit(X, Y["state"])
    assert_same(numbers(again, X[:8]), dropping)
    model.save(tmp_path / "dropping")
    back = load(tmp_path / "dropping", backbone=partial(Dropping, 0.5))
    assert_same(numbers(back, X[:8]), dropping)


def test_dropout_without_a_key_is_refused_rather_than_left_out() -> None:
    X, Y = rows()
    assert not takes_key(Keyless(Dropping(key=jax.random.key(0))))
    with pytest.raises(ValueError, match="Dropout requires a key"):
        tiny(STATE, backbone=Keyless(Dropping(key=jax.random.key(0)))).fit(X, Y["state"])


def test_a_module_over_tables_may_use_dropout_too() -> None:
    layout = Layout(("a", "b", "c"), ((2,), (1,), (0,)))

    class Both(eqx.Module):
        net: Dropping

        def __call__(self, x: jax.Array, *, key: Any = None) -> jax.Array:
            return self.net(x[::-1, 0], key=key)

    flat = Dropping(key=jax.random.key(0))
    over = windowed(Both(flat), layout)
    assert takes_key(over)
    assert not takes_key(windowed(Keyless(Dropping(key=jax.random.key(0))), layout))
    x = jnp.asarray(rows()[0][:5], jnp.float32)
    for key in (jax.random.key(1), jax.random.key(2)):
        got, want = (in_training(Model(at_rest(net), {}), key).features(x) for net in (over, flat))
        np.testing.assert_array_equal(got, want)
