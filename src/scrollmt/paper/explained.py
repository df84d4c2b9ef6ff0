"""The comparison in plain words: what each arm, each corpus and each figure is."""

from __future__ import annotations

from scrollmt.paper.figures import CLOUD, LORENZ, OU

_CE = "cross-entropy losses for event and regime"
_PROBIT = (
    "threshold likelihoods for event and regime: a latent line with noise, cut at learned edges"
)

DEFAULT_ARM = (
    "scrollmt as a user gets it, with the default preset. Not an arm of the paper: it tries "
    "several settings and mixes the runs that do best on validation."
)
ARMS = {
    "scroll-diag": "The paper's method. One network serves all questions and is trained on the sum "
    "of their log scores. Each question has a Gaussian belief about its last-layer weights; here "
    "with a diagonal covariance.",
    "scroll-full": "The paper's method with an unrestricted covariance.",
    "scroll-none": "The paper's method without a belief: point estimates and one noise level.",
    "map-ce": f"A plain network: squared error for the state, {_CE}, added with equal weights. The "
    "state's standard deviation is that of its validation residuals.",
    "map-ce-grid": "As map-ce, with the loss weights chosen by validation from 49 pairs.",
    "kendall-ce": f"Loss weights that are learned with the network, one a question; {_CE}.",
    "mle-sigma-ce": "A second output of the network gives the state's standard deviation; all "
    f"losses are negative log scores, with {_CE}.",
    "map-probit": f"As map-ce, but with {_PROBIT}.",
    "map-probit-grid": "As map-probit, with the loss weights chosen by validation from 49 pairs.",
    "kendall-probit": "As kendall-ce, but with threshold likelihoods.",
    "mle-sigma-probit": "As mle-sigma-ce, but with threshold likelihoods.",
    "laplace-diag-probit": "A fitted map-probit network that gets a belief afterwards, from the "
    "curvature of its loss (Laplace approximation); diagonal covariance.",
    "laplace-full-probit": "As laplace-diag-probit, with an unrestricted covariance.",
    "scroll-diag-ens5": "Five scroll-diag models from different starting values, mixed.",
    "map-ce-ens5": "Five map-ce networks from different starting values, mixed.",
    "map-probit-ens5": "Five map-probit networks from different starting values, mixed.",
}
CORPORA = {
    "OU": "A simulated Ornstein-Uhlenbeck process, whose true law is known. State: its value; "
    "event: whether it passes 1.5 on the way; regime: the quartile of its mean.",
    "Lorenz-63": "A simulated chaotic system with noise, half a time unit ahead. State: x; event: "
    "whether x is positive; regime: the quartile of z.",
    "PM2.5": "Hourly air quality in Beijing, 2010 to 2014, a day ahead. State: log(1 + PM2.5); "
    "event: whether the daily mean is above 75 ug/m3; regime: the band of PM2.5.",
}
FIGURES = {
    OU: "Ornstein-Uhlenbeck: predictive standard deviation of the state by lead (dots, mean and "
    "one standard deviation over seeds) beside the true one (line). Triangles: the part that is "
    "noise.",
    LORENZ: "Lorenz-63: the same, averaged over states. Grey: the 10th to 90th percentile of the "
    "true standard deviation over states.",
    CLOUD: "Lorenz-63: predicted variance of each test window against the variance of simulations "
    "from the same state; on the line both are equal. Free: beliefs that are trained with the "
    "network (scroll-diag, scroll-full). Closed: the state's belief is its exact posterior at "
    "every step.",
}
