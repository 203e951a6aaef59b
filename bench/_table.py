"""The measured cases of clusters and their bars: names and numbers only, for programs that build no graph."""

GIB = 1 << 30


class Row:
    """A case: how `_cases.py` builds it, the least ratio of steps, and the most CPU of our servers and memory of our ps as a
    fraction of TensorFlow's; None if there is no bar."""

    def __init__(self, build, bar=None, cpu_bar=None, memory_bar=None):
        self.build = build
        self.bar = bar
        self.cpu_bar = cpu_bar
        self.memory_bar = memory_bar


CASES = {
    "scalar": Row("null_step(1)", 3.0, 0.5),
    "dense 4 MB": Row(f"null_step({1 << 20})", 2.5, 0.5),
    "dense 100 MB": Row(f"null_step({25 << 20})", 2.0, 0.5),
    "dense 1 GB": Row(f"null_step({GIB // 4})"),
    "sparse 32 rows of 1 GB": Row(f"sparse_step({GIB // 256}, 64, 32)", 2.5, 0.5),
    "MLP asynchronous": Row("mlp", 3.0, 0.5, 0.1),
    "MLP synchronous": Row("mlp_sync", 3.0, 0.5),
    "CNN": Row("cnn", 1.15, 0.9),
    "embedding": Row("embedding", 1.8, 0.7),
    "LSTM": Row("lstm", 1.6, 0.7),
}

# The same model as "MLP asynchronous", with workers that are Rust programs.
RUST = Row("mlp", 5.0, 0.5, 0.1)
