r"""The paper's three figures from plain arrays: SVG, PDF, and the data file that its LaTeX reads.

    sde_sigma_ou       predictive sd over leads beside sqrt(V*)        (fig:sigma_delta, left)
    perstate_lorenz    V_n against V*(x_n), several routes             (fig:sigma_delta, right)
    sde_sigma_lorenz   averaged predictive sd over leads, with band    (fig:sigma_delta_lorenz)

Data files have one header row and columns parted by spaces, as pgfplots wants them. The pictures
are drawn by `plots.sd_over_leads` and `plots.variance_tracking`, from the columns alone, so that a
data file and its picture cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scrollmt import plots
from scrollmt._io.atomic import replacing
from scrollmt.plots.canvas import FIGURE_SIZE, thin

Columns = dict[str, np.ndarray]

OU, LORENZ, CLOUD = "sde_sigma_ou", "sde_sigma_lorenz", "perstate_lorenz"
ROUTES = {"v_diag": "free (Diag)", "v_full": "free (Full)", "v_closed": "closed"}
# What the LaTeX source reads of each file; a file may hold more.
LEAD_COLUMNS = ("delta", "sd_star", "pred_sd_mean", "pred_sd_lo", "pred_sd_hi")
READ = {
    OU: LEAD_COLUMNS,
    LORENZ: (*LEAD_COLUMNS, "sd_p10", "sd_p90"),
    CLOUD: ("vstar", *ROUTES),
}


def over_leads(
    leads: Any,
    predictive_sd: Any,
    true_sd: Any,
    *,
    sigma_obs: Any = None,
    p10: Any = None,
    p90: Any = None,
) -> Columns:
    """Columns of a figure over L leads: mean over seeds, and one sd to either side.

    `predictive_sd` and `sigma_obs` are (S, L), one row a seed; the others (L,). `p10` and `p90`
    are percentiles of the true sd over states.
    """
    delta = np.asarray(leads, dtype=float)
    rows = np.asarray(predictive_sd, dtype=float)
    if rows.ndim != 2 or rows.shape[1] != len(delta):
        raise ValueError(
            f"predictive_sd has shape {rows.shape}, need (seeds, {len(delta)}): one row a seed, "
            f"one column for each of the leads {delta.tolist()}"
        )
    mean = rows.mean(axis=0)
    spread = rows.std(axis=0, ddof=1) if len(rows) > 1 else np.zeros_like(mean)
    columns = {
        "delta": delta,
        "sd_star": np.asarray(true_sd, dtype=float),
        "pred_sd_mean": mean,
        "pred_sd_lo": mean - spread,
        "pred_sd_hi": mean + spread,
    }
    if sigma_obs is not None:
        columns["sigma_obs"] = np.asarray(sigma_obs, dtype=float).mean(axis=0)
    for name, values in (("sd_p10", p10), ("sd_p90", p90)):
        if values is not None:
            columns[name] = np.asarray(values, dtype=float)
    return columns


def per_state(true_var: Any, predicted: Mapping[str, Any], *, points: int | None = 400) -> Columns:
    """Columns of the cloud: V* and V_n by route, thinned evenly by the rank of V*.

    `predicted` has the variances (N,) by route, named as in the file without its "v_".
    """
    truth = np.asarray(true_var, dtype=float)
    kept = thin(truth, points)
    kept = kept[np.argsort(truth[kept], kind="stable")]
    columns = {"vstar": truth[kept]}
    for route, var in predicted.items():
        values = np.asarray(var, dtype=float)
        if values.shape != truth.shape:
            raise ValueError(
                f"route {route!r} has shape {values.shape}, true_var has {truth.shape}"
            )
        columns[f"v_{route}"] = values[kept]
    return columns


def write_dat(path: str | Path, columns: Mapping[str, Any]) -> Path:
    """A table that pgfplots reads: names, then one row each, parted by spaces."""
    arrays = {name: np.asarray(values, dtype=float) for name, values in columns.items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    if not arrays or len(set(shapes.values())) > 1 or any(len(s) != 1 for s in shapes.values()):
        raise ValueError(f"columns must be vectors of one length, got {shapes}")
    for name, array in arrays.items():
        if any(letter.isspace() for letter in name) or not name:
            raise ValueError(f"column {name!r}: a name has no spaces")
        if not np.isfinite(array).all():
            row = int(np.flatnonzero(~np.isfinite(array))[0])
            raise ValueError(f"column {name!r} is {array[row]} in row {row}; LaTeX needs numbers")
    lines = [" ".join(arrays)]
    lines += [" ".join(f"{v:.6g}" for v in row) for row in zip(*arrays.values(), strict=True)]
    target = Path(path)
    with replacing(target) as draft:
        draft.write_text("\n".join(lines) + "\n", encoding="ascii", newline="\n")
    return target


def read_dat(path: str | Path) -> Columns:
    """What `write_dat` wrote."""
    names, *rows = Path(path).read_text(encoding="ascii").splitlines()
    values = np.array([row.split() for row in rows], dtype=float).reshape(len(rows), -1)
    return dict(zip(names.split(), values.T, strict=True))


def draw(folder: str | Path, figures: Mapping[str, Mapping[str, Any]]) -> list[Path]:
    """Write `<name>.dat`, `<name>.svg` and `<name>.pdf` for each figure, from its columns."""
    written = []
    for name, columns in figures.items():
        missing = [column for column in READ[name] if column not in columns]
        if missing:
            raise ValueError(f"figure {name!r} lacks the columns {missing}; it has {list(columns)}")
        data = write_dat(Path(folder) / f"{name}.dat", columns)
        written.append(data)
        ax = picture(name, read_dat(data))
        import matplotlib

        # Text stays text, and neither a date nor a random mark lets two runs differ. The ground
        # is white: a file does not know the page that it will stand on.
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
            for ending, date in (("svg", "Date"), ("pdf", "CreationDate")):
                path = data.with_suffix(f".{ending}")
                with replacing(path) as draft:
                    ax.figure.savefig(draft, metadata={date: None})
                written.append(path)
    return written


def picture(name: str, columns: Mapping[str, Any], *, ax: Any = None) -> Any:
    """One of the three figures, by the name of its data file, as axes."""
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=FIGURE_SIZE, layout="constrained").subplots()
    if name == CLOUD:
        routes = {label: columns[key] for key, label in ROUTES.items() if key in columns}
        plots.variance_tracking(routes, columns["vstar"], ax=ax)
        ax.set_xlabel("variance by re-simulation, V*")
        ax.set_ylabel("predicted variance, V")
        return ax
    if name not in READ:
        raise ValueError(f"no figure {name!r}; there are {list(READ)}")
    mean, high = columns["pred_sd_mean"], columns["pred_sd_hi"]
    band = (columns["sd_p10"], columns["sd_p90"]) if name == LORENZ else None
    plots.sd_over_leads(
        columns["delta"],
        mean,
        spread=high - mean,
        true_sd=columns["sd_star"],
        sigma_obs=columns.get("sigma_obs"),
        band=band,
        ax=ax,
    )
    return ax
