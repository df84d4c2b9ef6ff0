"""The demo's picture comes for light and for dark pages."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from scrollmt.cli import demonstration
from scrollmt.laws import GaussianLaw


def test_the_picture_is_drawn_for_light_and_for_dark_pages(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    law = GaussianLaw(rng.normal(size=80), np.exp(rng.normal(size=80)))
    path = demonstration.draw(tmp_path / "new", law, law.mean + law.sd, law.var)
    assert path == tmp_path / "new" / "lorenz63.png"
    light, dark = imread(path), imread(path.with_name("lorenz63-dark.png"))
    assert light.shape == dark.shape
    # White ground with black letters; no ground at all with bright ones. The far left holds the
    # letters of the vertical axis alone.
    np.testing.assert_array_equal(light[0, 0], [1.0, 1.0, 1.0, 1.0])
    assert dark[0, 0, 3] == 0.0
    letters = light[:, :24, :3].min(axis=2) < 0.2
    assert letters.sum() > 50
    assert dark[:, :24, 3][letters].min() > 0.8
    assert dark[:, :24, :3][letters].min() > 0.8
    # Marks are brighter on the dark page: blue ones, weighed by how much they cover.
    assert blueness(dark) == pytest.approx(to_rgb("#56b4e9"), abs=0.05)
    assert blueness(light) == pytest.approx(to_rgb("#0072b2"), abs=0.05)


def blueness(picture: np.ndarray) -> tuple[float, ...]:
    """The colour of the most saturated blue pixels that nothing shines through."""
    solid = picture[picture[:, :, 3] > 0.99][:, :3]
    blue = solid[np.argsort(solid[:, 2] - solid[:, 0])[-50:]]
    return tuple(np.median(blue, axis=0))
