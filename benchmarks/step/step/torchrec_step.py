"""TorchRec: `DistributedModelParallel` on CPUs, gloo, FBGEMM's fused Adagrad.

Runs in the environment that `benchmarks/support/peers/install_torchrec` makes, under horovodrun,
which only launches it. Ids are row numbers: FBGEMM has no index.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable

import numpy as np
import torch
import torch.distributed as dist
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.sharding_plan import (
    construct_module_sharding_plan,
    row_wise,
    table_wise,
)
from torchrec.distributed.train_pipeline import TrainPipelineSparseDist
from torchrec.distributed.types import ParameterSharding, ShardingEnv, ShardingPlan
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper
from torchrec.streamable import Pipelineable

from benchmarks.step.step import timing
from benchmarks.step.step.workload import Batches, StepConfig, add_options, config_in

LEARNING_RATE = 0.05
PORT = "29555"


class Batch(Pipelineable):
    """A batch as the pipeline moves it."""

    def __init__(self, ids: KeyedJaggedTensor, labels: torch.Tensor) -> None:
        self.ids = ids
        self.labels = labels

    def to(self, device: torch.device, non_blocking: bool = False) -> Batch:
        """Returns the batch on a device."""
        return Batch(self.ids.to(device, non_blocking), self.labels.to(device))

    def record_stream(self, stream: torch.Stream) -> None:
        """Does nothing: there are no streams on CPUs."""


def tower(config: StepConfig) -> torch.nn.Module:
    """Returns the dense tower of all sides."""
    widths = [config.features * config.dim, 256, 128, 1]
    layers: list[torch.nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    made = torch.nn.Sequential(*layers[:-1])
    for layer in made:
        if isinstance(layer, torch.nn.Linear):
            torch.nn.init.normal_(layer.weight, std=0.05)
            torch.nn.init.zeros_(layer.bias)
    return made


class Model(torch.nn.Module):
    """26 tables and the dense tower of all sides; returns the loss first, as the pipeline wants."""

    def __init__(self, config: StepConfig) -> None:
        super().__init__()
        self.tables = EmbeddingBagCollection(
            device=torch.device("meta"),
            tables=[
                EmbeddingBagConfig(
                    name=f"table_{feature}",
                    embedding_dim=config.dim,
                    num_embeddings=config.rows_per_feature,
                    feature_names=[f"feature_{feature}"],
                    init_fn=lambda weight: torch.nn.init.uniform_(weight, -0.05, 0.05),
                )
                for feature in range(config.features)
            ],
        )
        self.tower = tower(config)

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the mean log loss, and it again without its graph."""
        logits = self.tower(self.tables(batch.ids).values())
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.labels)
        return loss, loss.detach()


def distributed(model: torch.nn.Module, sharding: str) -> DistributedModelParallel:
    """Shards the tables of a model, its attribute `tables`, over the ranks; with fused Adagrad."""
    apply_optimizer_in_backward(
        torch.optim.Adagrad, model.tables.parameters(), {"lr": LEARNING_RATE, "eps": 1e-7}
    )
    world = dist.get_world_size()
    return planned(
        model, lambda number: row_wise() if sharding == "rows" else table_wise(number % world)
    )


def planned(
    model: torch.nn.Module, sharding_of: Callable[[int], Callable[..., ParameterSharding]]
) -> DistributedModelParallel:
    """Shards the tables of a model, its attribute `tables`, over the ranks.

    Args:
        model: The model.
        sharding_of: Function that returns how the table of that number is sharded.
    """
    world = dist.get_world_size()
    sharder = EmbeddingBagCollectionSharder()
    plan = construct_module_sharding_plan(
        model.tables,
        per_param_sharding={
            table.name: sharding_of(number)
            for number, table in enumerate(model.tables.embedding_bag_configs())
        },
        sharder=sharder,
        local_size=world,
        world_size=world,
        device_type="cpu",
    )
    return DistributedModelParallel(
        model,
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=torch.device("cpu"),
        plan=ShardingPlan({"tables": plan}),
        sharders=[sharder],
    )


def start(threads: int = 0) -> tuple[int, int]:
    """Starts the ranks that horovodrun has launched, each with its share of the processors.

    Args:
        threads: of each rank instead, if not 0.

    Returns:
        This rank, and their number.
    """
    rank, size = (int(os.environ[f"HOROVOD_{name}"]) for name in ("RANK", "SIZE"))
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=PORT
    )
    torch.set_num_threads(threads or max(1, len(os.sched_getaffinity(0)) // size))
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    return rank, size


def gather(value: float) -> list[float]:
    """Returns the values of all ranks."""
    values = [0.0] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def to_batch(ids: np.ndarray, labels: np.ndarray) -> Batch:
    """Returns the batch of ids `[features, batch]` and labels `[batch, 1]`."""
    features, batch = ids.shape
    jagged = KeyedJaggedTensor(
        keys=[f"feature_{feature}" for feature in range(features)],
        values=torch.from_numpy(ids.reshape(-1)),
        lengths=torch.ones(features * batch, dtype=torch.int32),
    )
    return Batch(jagged, torch.from_numpy(labels))


def main() -> None:
    """Runs this side on every rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--sharding", choices=["tables", "rows"], default="tables")
    arguments = parser.parse_args()
    config = config_in(arguments)
    rank, size = start(config.threads)
    model = distributed(Model(config), arguments.sharding)
    dense = KeyedOptimizerWrapper(
        {name: weight for name, weight in model.named_parameters() if "tower" in name},
        lambda weights: torch.optim.Adagrad(weights, lr=LEARNING_RATE),
    )
    optimizer = CombinedOptimizer([model.fused_optimizer, dense])
    pipeline = TrainPipelineSparseDist(
        model, optimizer, torch.device("cpu"), execute_all_batches=True
    )
    batches = Batches(config, rank, size)
    fill = iter([to_batch(*batch) for batch in batches.fill()])
    while True:
        try:
            pipeline.progress(fill)
        except StopIteration:
            break
    count = config.steps * (config.windows + 1)
    prepared = iter([to_batch(*batch) for batch in batches.measured(count)])
    losses: list[torch.Tensor] = []

    def step() -> None:
        losses[:] = [pipeline.progress(prepared)]

    windows = timing.time_windows(config, (step for _ in range(count)), lambda: losses[0].item())

    timing.print_result(
        f"TorchRec ({arguments.sharding}-wise)",
        config,
        windows,
        gather,
        rank,
        torch=torch.__version__,
        loss=losses[0].item(),
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
