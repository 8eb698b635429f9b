"""TorchRec: the rows of the table spread over the ranks, FBGEMM's fused Adagrad; no index."""

from __future__ import annotations

import numpy as np
import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor

from benchmarks.hosts.memory import footprint
from benchmarks.step.step import torchrec_step


class Tables(torch.nn.Module):
    """One table."""

    def __init__(self, name: str, rows: int, dim: int) -> None:
        super().__init__()
        config = EmbeddingBagConfig(
            name=f"table_{name}",  # a bare "items" is a method of the dictionary that it is kept in
            embedding_dim=dim,
            num_embeddings=rows,
            feature_names=["keys"],
            init_fn=lambda weight: torch.nn.init.uniform_(weight, -0.05, 0.05),
        )
        self.tables = EmbeddingBagCollection(device=torch.device("meta"), tables=[config])

    def forward(self, keys: KeyedJaggedTensor) -> torch.Tensor:
        """Returns the embeddings of keys."""
        return self.tables(keys).values()


def make_table(name: str, rows: int, dim: int) -> footprint.TableUnderTest:
    """Returns a table of rows `[rows, dim]`, whose optimizer runs in the backward pass."""
    model = torchrec_step.distributed(Tables(name, rows, dim), "rows")

    def jagged(keys: np.ndarray) -> KeyedJaggedTensor:
        lengths = torch.ones(len(keys), dtype=torch.int32)
        return KeyedJaggedTensor(["keys"], torch.from_numpy(keys), lengths=lengths)

    def train(keys: np.ndarray) -> None:
        model(jagged(keys)).mean().backward()

    def lookup(keys: np.ndarray) -> torch.Tensor:
        with torch.no_grad():
            return model(jagged(keys))

    return footprint.TableUnderTest(train=train, lookup=lookup)


def main() -> None:
    """Runs this side on every rank."""
    config = footprint.parse_config(__doc__)
    ranks = torchrec_step.start()
    result = footprint.measure(
        config,
        ranks,
        lambda name, rows: make_table(name, rows, config.dim),
        lambda value: int(sum(torchrec_step.gather(value))),
    )
    footprint.report("TorchRec", *ranks, result | {"payload_bytes": config.payload_bytes})


if __name__ == "__main__":
    main()
