"""What holds for every test: shapes are checked, pictures need no screen, precision stays put."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

import browser

# Set before anything imports matplotlib, and inherited by the tests' own subprocesses.
os.environ["MPLBACKEND"] = "Agg"

# A shell makes what it starts in the background deaf to Ctrl-C, and so would be the programs that
# tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Every jaxtyping annotation in scrollmt becomes an assertion. The library itself never installs
# a checker: users would pay for it, and it would change what they import.
install_import_hook("scrollmt", "shape_checker.check")

import jax  # noqa: E402  (the hook must be in place before anything can import scrollmt)

# Most of a run is compilation. What one test has compiled, others read from here, those in the
# tests' own subprocesses and in a later run among them.
CACHE = {
    "jax_compilation_cache_dir": str(Path(__file__).parents[1] / ".jax_cache"),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
for name, value in CACHE.items():
    jax.config.update(name, value)
    os.environ[name.upper()] = str(value)


@pytest.fixture(autouse=True)
def _jax_settings_are_not_leaked() -> Iterator[None]:
    """A test that needs float64 asks for it with `with jax.enable_x64(True):`, never globally."""
    before = dict(jax.config.values)
    yield
    changed = {k: v for k, v in jax.config.values.items() if v != before[k]}
    for name in changed:
        jax.config.update(name, before[name])
    assert not changed, f"the test left JAX settings behind: {changed}"


@pytest.fixture(scope="module")
def optimised() -> Iterator[None]:
    """For modules whose programs run for longer than it takes to compile them well.

    `make test` has the others compiled as fast as possible (JAX_DISABLE_MOST_OPTIMIZATIONS).
    """
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without a browser its tests are left out, unless `SCROLLMT_REQUIRE_BROWSER` is set."""
    if item.get_closest_marker("browser") and not os.environ.get("SCROLLMT_REQUIRE_BROWSER"):
        try:
            browser.find()
        except browser.NoBrowserError as missing:
            pytest.skip(f"{missing}; `make browser` installs one")
