"""DeepFM in TorchRec: a copy of the tables on each rank, whose gradients are averaged.

horovodrun -np 2 PYTHON -m benchmarks.quality.time_to_auc.torchrec_deepfm --recipe JSON ...

Runs in the environment that `benchmarks/support/peers/install_torchrec` makes. It takes the batches
of the other sides and computes the same: the penalty and Adam reach all rows at every step, which
TorchRec's fused optimizers do not do.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torchmetrics.functional.classification import binary_auroc
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.sharding_plan import data_parallel

from benchmarks.quality.time_to_auc.clock import Clock, parser_of, result_of
from benchmarks.quality.time_to_auc.numbered import batches, load
from benchmarks.step.step.torchrec_step import planned, start
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.sharding import Shard

# Fields of `examples.click_training.Recipe`, whose module imports TensorFlow.
Recipe = SimpleNamespace


class DeepFM(nn.Module):
    """A factorization machine and a deep network over the same embeddings.

    Args:
        rows: Number of rows of each feature's table.
        recipe: Settings of the model and of its training.
    """

    def __init__(self, rows: dict[str, int], recipe: Recipe) -> None:
        super().__init__()
        self._features, self._dim = len(rows), recipe.dim
        self.tables = EmbeddingBagCollection(
            tables=[
                EmbeddingBagConfig(
                    name=f"table_{name}",
                    embedding_dim=recipe.dim + 1,  # the last column is the first-order weight
                    num_embeddings=count,
                    feature_names=[name],
                    init_fn=lambda weight: nn.init.normal_(weight, std=recipe.stddev),
                )
                for name, count in rows.items()
            ]
        )
        self.tower = tower([self._features * recipe.dim, *recipe.hidden], recipe.dropout)

    def forward(self, keys: KeyedJaggedTensor) -> torch.Tensor:
        """Returns the logits, `[n]`."""
        fields = self.tables(keys).values().view(-1, self._features, self._dim + 1)
        embeddings, weights = fields[..., :-1], fields[..., -1]
        pairs = embeddings.sum(1).square() - embeddings.square().sum(1)
        deep = self.tower(embeddings.flatten(1))
        return deep.squeeze(1) + weights.sum(1) + pairs.sum(1) / 2


def tower(widths: Sequence[int], dropout: float) -> nn.Sequential:
    """Returns the deep network, with Keras's initial values."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU(), nn.Dropout(dropout)]
    layers.append(nn.Linear(widths[-1], 1))
    for layer in layers:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


def inputs_of(clicks: Clicks) -> tuple[KeyedJaggedTensor, torch.Tensor]:
    """Returns samples as the model takes them, and their labels, `[n]`."""
    features = list(clicks.features.values())
    keys = KeyedJaggedTensor(
        keys=list(clicks.features),
        values=torch.cat([torch.from_numpy(numbers) for numbers in features]),
        lengths=torch.ones(len(features) * len(clicks), dtype=torch.int32),
    )
    return keys, torch.from_numpy(clicks.label)


class Scorer:
    """Scores samples of all ranks, of which this rank scores its share.

    Args:
        model: The model.
        clicks: The samples of all ranks.
        shard: Number of this rank, and number of ranks.
    """

    def __init__(self, model: nn.Module, clicks: Clicks, shard: Shard) -> None:
        self._model = model
        self._keys, self._labels = inputs_of(clicks.shard(shard.rank, shard.size))

    @torch.no_grad()
    def auc(self) -> float:
        """Returns the AUC of the samples of all ranks."""
        self._model.eval()
        logits = self._model(self._keys)
        self._model.train()
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, torch.stack([logits.double(), self._labels.double()]))
        # Not the logits themselves: torchmetrics takes what is not in [0, 1] for float32 logits.
        scores, labels = torch.cat(parts, dim=1)
        return float(binary_auroc(torch.sigmoid(scores), labels.long()))


def loss_of(
    model: nn.Module, penalty: float, keys: KeyedJaggedTensor, labels: torch.Tensor
) -> torch.Tensor:
    """Returns the mean log loss of a rank's samples, and the penalty of all rows."""
    loss = nn.functional.binary_cross_entropy_with_logits(model(keys), labels)
    tables = [weight for name, weight in model.named_parameters() if "tower" not in name]
    return loss + penalty * sum(weight.square().sum() for weight in tables)


class Trainer:
    """Trains a model on this rank's batches.

    Args:
        model: The model.
        recipe: Settings of the model and of its training.
        rate: Adam's learning rate.
        clicks: Samples of all ranks.
        shard: Number of this rank, and number of ranks.
        seed: Seed of the order of samples.
    """

    def __init__(
        self, model: nn.Module, recipe: Recipe, rate: float, clicks: Clicks, shard: Shard, seed: int
    ) -> None:
        self._model, self._recipe = model, recipe
        self._clicks, self._shard, self._seed = clicks, shard, seed
        self._optimizer = torch.optim.Adam(model.parameters(), lr=rate, eps=1e-7, fused=True)
        self.slower = ReduceLROnPlateau(
            self._optimizer, mode="max", factor=recipe.slowdown, patience=0, threshold=0.0
        )

    def epoch(self, number: int, clock: Clock) -> bool:
        """Trains an epoch, or until the clock ends it; returns whether it did."""
        own = batches(self._clicks, self._recipe.batch_size, self._shard, self._seed, number)
        for step, clicks in enumerate(own):
            self._optimizer.zero_grad()
            loss_of(self._model, self._recipe.penalty, *inputs_of(clicks)).backward()
            nn.utils.clip_grad_norm_(self._model.parameters(), self._recipe.clip)
            self._optimizer.step()
            if clock.step_ended(number, step):
                return True
        return False


def main() -> None:
    """Trains until all targets are met; rank 0 prints the result."""
    parser = parser_of(__doc__, ["torchrec"])
    parser.add_argument("--numbered", type=Path, required=True, help="samples of all ranks")
    parser.add_argument("--recipe", type=json.loads, required=True, help="fields of a Recipe")
    arguments = parser.parse_args()
    recipe = Recipe(**arguments.recipe)
    shard = Shard(*start())
    parts = load(arguments.numbered)
    rows = {
        name: 1 + max(int(clicks.features[name].max()) for clicks in parts.values())
        for name in parts["train"].features
    }
    parts = {name: clicks.take(slice(arguments.samples)) for name, clicks in parts.items()}
    torch.manual_seed(1000 * arguments.seed)
    # A copy on each rank, whose gradients are averaged.
    model = planned(DeepFM(rows, recipe), lambda _: data_parallel())
    torch.manual_seed(1000 * arguments.seed + shard.rank)  # dropout of its own for each rank
    trainer = Trainer(model, recipe, arguments.rate, parts["train"], shard, arguments.seed)
    scored, valid = (Scorer(model, parts[name], shard) for name in (arguments.part, "valid"))
    clock = Clock(
        scored.auc,
        lambda: None,  # a step has ended when its calls return
        samples=len(parts["train"]),
        batch=recipe.batch_size,
        every=arguments.every,
        targets=arguments.targets,
    )
    for number in range(arguments.epochs):
        if trainer.epoch(number, clock):
            break
        trainer.slower.step(clock.stopped(valid.auc))
    if shard.rank == 0:
        print(json.dumps(result_of(clock, arguments)), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
