"""Windows of noisy systems and, where it is known, the law that they were drawn from.

```python
from scrollmt.corpora import lorenz63, ou

corpus = lorenz63.draw(lead=0.5)  # corpus.X (N, D); corpus.Y by task name
corpus.true_var(corpus.X)  # V* of every window, (N,)
corpus.oracle(corpus.X, corpus.Y).mean_nll  # nats, by task
```
"""

from scrollmt.corpora import lorenz63, ou
from scrollmt.corpora.base import Corpus, OracleScore

__all__ = ["Corpus", "OracleScore", "lorenz63", "ou"]
