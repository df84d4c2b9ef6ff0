"""Two devices, and two processes, end where one device ends."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# 301 windows do not divide by two, so a row of weight zero is added on the way.
SCRIPT = """
import sys
import jax, jax.numpy as jnp, numpy as np

place, path = sys.argv[1:3]
if place.startswith("process"):
    jax.distributed.initialize("localhost:" + sys.argv[3], 2, int(place[-1]))

from test_batching import data, objective, start
from scrollmt.fit import Schedule, fit, stack
from scrollmt.streams import ArrayStream, mesh_of, spread

mesh = None if place == "one" else mesh_of()
assert mesh is None or mesh.size == 2, mesh
whole, valid = data(301, 0), data(100, 1)
if mesh is not None:
    host = jax.tree.map(np.asarray, (whole, valid))
    whole, valid = (spread(part, mesh) for part in host)
    assert len(whole.x.sharding.device_set) == 2
sources = {"full": (whole, Schedule(steps=80))}
if not place.startswith("process"):
    stream = ArrayStream(jax.tree.map(np.asarray, data(301, 0)), mesh=mesh)
    sources["stream"] = (stream, Schedule(steps=80, batch_size=50, eval_every=4))
out = {}
for name, (train, schedule) in sources.items():
    fits = fit(stack([start(0), start(1)]), train, valid, objective=objective,
               hyper={"learning_rate": jnp.asarray([0.02, 0.03])}, schedule=schedule,
               keys=jax.random.split(jax.random.key(0), 2))
    out[name] = fits.history["validation"]
    weights = fits.models.backbone.weights[0]
    out[name + "_weights"] = np.asarray(weights)
np.savez(path, **out)
"""


def started(place: str, path: Path, *args: str, devices: int = 1) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, place, str(path), *args],
        cwd=Path(__file__).parent,
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} "
            f"--xla_force_host_platform_device_count={devices}",
        },
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen) -> None:
    _, errors = process.communicate(timeout=150)
    assert process.returncode == 0, errors[-3000:]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


@pytest.mark.slow
def test_two_devices_and_two_processes_give_the_result_of_one(tmp_path: Path) -> None:
    port = str(free_port())
    processes = {
        "one": started("one", tmp_path / "one.npz"),
        "two": started("two", tmp_path / "two.npz", devices=2),
        "process0": started("process0", tmp_path / "process0.npz", port),
        "process1": started("process1", tmp_path / "process1.npz", port),
    }
    for process in processes.values():
        finished(process)
    results = {name: np.load(tmp_path / f"{name}.npz") for name in processes}
    one = results.pop("one")
    assert one["full"][:, -1].max() < one["full"][:, 0].min()  # there was something to learn
    for name, result in results.items():
        for key in result.files:
            assert one[key].shape == result[key].shape
            gap = np.abs(result[key] - one[key]).max() / np.abs(one[key]).max()
            assert gap < 1e-5, (name, key, gap)
