"""Windows of noisy systems and, where it is known, the law that they were drawn from.

```python
from scrollmt.corpora import lorenz63, ou, pm25

corpus = lorenz63.draw(lead=0.5)  # corpus.X (N, D); corpus.Y by task name
corpus.true_var(corpus.X)  # V* of every window, (N,)
corpus.oracle(corpus.X, corpus.Y).mean_nll  # nats, by task

windows = pm25.load()  # real windows, of which no law is known; windows.split() parts them
```

``de_price``, ``river`` and ``wind`` give windows of three further real series, ``uci`` nine sets of
plain rows with their public splits; their files are not downloaded but read from a folder.
"""

from scrollmt.corpora import de_price, lorenz63, ou, pm25, river, uci, wind
from scrollmt.corpora.base import Corpus, OracleScore

__all__ = [
    "Corpus",
    "OracleScore",
    "de_price",
    "lorenz63",
    "ou",
    "pm25",
    "river",
    "uci",
    "wind",
]
