"""The bound of PyTorch: its tower under DistributedDataParallel, and no table."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.step.step import timing
from benchmarks.step.step.torchrec_step import LEARNING_RATE, gather, start, tower
from benchmarks.step.step.workload import Batches, add_options, config_in


def main() -> None:
    """Runs this side on every rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    config = config_in(parser.parse_args())
    rank, size = start(config.threads)
    model = DistributedDataParallel(tower(config))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=LEARNING_RATE)
    batches = Batches(config, rank, size)
    count = config.steps * (config.windows + 1)
    labels = [torch.from_numpy(labels) for _, labels in batches.measured(count)]
    prepared = iter(labels)
    embedded = torch.rand(len(labels[0]), config.features * config.dim, requires_grad=True)
    losses: list[torch.Tensor] = []

    def step() -> None:
        embedded.grad = None
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(embedded), next(prepared))
        loss.backward()
        optimizer.step()
        losses[:] = [loss.detach()]

    windows = timing.time_windows(config, (step for _ in range(count)), lambda: losses[0].item())
    timing.print_result("bound (PyTorch)", config, windows, gather, rank, torch=torch.__version__)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
