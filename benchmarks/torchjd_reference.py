"""Writes tests/torchjd_reference.json: what TorchJD's aggregators make of small matrices.

Run with `pip install "torchjd[quadprog_projector]"`; the tests read the file alone. UPGrad without
the regularisation that TorchJD adds by default; MGDA iterated until it has converged; PCGrad many
times, since its order is drawn.
"""

import json
from importlib.metadata import version
from pathlib import Path

import torch
from torchjd.aggregation import MGDA, PCGrad, UPGrad
from torchjd.linalg import QuadprogProjector

MATRICES = {
    "two in conflict": [[1.0, 2.0, 3.0], [-4.0, 1.0, 0.0]],
    "two in agreement": [[1.0, 2.0, 3.0], [2.0, 1.0, 0.5]],
    "three, one against both": [
        [1.0, 0.2, 0.0, 0.5],
        [0.8, 1.0, -0.1, 0.0],
        [-1.0, -0.5, 0.3, 0.2],
    ],
    "three, all in conflict": [[1.0, 0.0, 0.1], [-0.6, 0.7, 0.1], [-0.3, -0.8, 0.2]],
    "three of other lengths": [[100.0, 20.0, -3.0], [-0.5, 0.2, 0.4], [0.01, -0.02, 0.03]],
    "four": [
        [0.3, -1.2, 0.5, 0.9, -0.4],
        [1.1, 0.4, -0.7, 0.2, 0.6],
        [-0.9, 0.3, 0.8, -0.1, -1.0],
        [0.2, 0.5, 0.1, -0.6, 0.7],
    ],
}
DRAWS = 60


def made(rows: list[list[float]]) -> dict[str, object]:
    matrix = torch.tensor(rows, dtype=torch.float64)
    orders = {tuple(round(v, 12) for v in PCGrad()(matrix).tolist()) for _ in range(DRAWS)}
    exact = QuadprogProjector(norm_eps=0.0, reg_eps=1e-13)
    return {
        "rows": rows,
        "upgrad": UPGrad(projector=exact)(matrix).tolist(),
        "mgda": MGDA(epsilon=1e-14, max_iters=20_000)(matrix).tolist(),
        "pcgrad": sorted(orders),
    }


if __name__ == "__main__":
    torch.manual_seed(0)
    found = {"torchjd": version("torchjd")} | {name: made(rows) for name, rows in MATRICES.items()}
    path = Path(__file__).parents[1] / "tests" / "torchjd_reference.json"
    lines = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in found.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
