"""The Python examples of docs/ and of the package's README, run as ranks. Each is compared with a formula or with training in one process.

    export PYTHONPATH=python LOCKSTEP_CORE_LIBRARY=build/library/liblockstep_core.so
    lockstep run -n 2 python tests/python/pages_test.py torch
    lockstep run -n 2 .deps/venv_tensorflow/bin/python tests/python/pages_test.py tensorflow

An example takes names for granted (`model`, `loader`). The function below that has its page and its number among the page's Python examples
gives it these names, and compares what it leaves. An example that has no such function is an error.
"""
import os
import pathlib
import re
import sys
from unittest import mock

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "python/README.md", *sorted((ROOT / "docs").glob("*.md"))]
ELSEWHERE = {("docs/checkpoints.md", 0)}  # run by tests/checkpoints/python_test.py
CHECKS = {}


def checks(page, number):
    def decorate(function):
        CHECKS[page, number] = function
        return function
    return decorate


def examples():
    """{(page, number): (line, text)}"""
    found = {}
    for page in PAGES:
        text = page.read_text()
        for number, match in enumerate(re.finditer(r"```python\n(.*?)```", text, re.S)):
            found[str(page.relative_to(ROOT)), number] = (text[:match.start(1)].count("\n"), match[1])
    return found


def library_of(text):
    return "tensorflow" if re.search(r"tensorflow|keras|jax", text) else "torch"


def near(actual, wanted, difference=1e-6):
    for one, other in zip(actual, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=0, atol=difference)


def given(seed):
    """Inputs and classes that any process can make."""
    numbers = np.random.default_rng(seed)
    return numbers.normal(size=(16, 4)).astype(np.float32), numbers.integers(0, 3, 16)


# ------------------------------------------------------------------------------------------------------------------------------ torch

def linear_and_batches(rank, size, batches=3):
    """A layer, the same on all ranks; a rank's batches of `size` ranks' (all of them: 0 of 1)."""
    import torch
    torch.manual_seed(1)
    parts = [given(seed) for seed in range(batches)]
    return torch.nn.Linear(4, 3), [(torch.from_numpy(data[rank::size]), torch.from_numpy(target[rank::size])) for data, target in parts]


def trained(optimizer_of):
    """The parameters that one process ends with on all batches."""
    import torch
    model, loader = linear_and_batches(0, 1)
    optimizer = optimizer_of(model.parameters())
    for data, target in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data), target).backward()
        optimizer.step()
    return numbers_of(model)


def numbers_of(model):
    return [parameter.detach().numpy() for parameter in model.parameters()]


@checks("docs/python.md", 0)
def one_word(run):
    import torch
    import torch.distributed as dist

    import lockstep.torch  # noqa: F401: the wheel's part
    run({"dist": dist})
    one = torch.ones(3)
    dist.all_reduce(one)
    assert dist.get_backend() == "lockstep" and one.tolist() == [dist.get_world_size()] * 3, one
    dist.destroy_process_group()


@checks("python/README.md", 0)
def data_parallel(run):
    import torch
    import torch.distributed as dist
    torch.manual_seed(1)
    names = run({})
    rank, size = dist.get_rank(), dist.get_world_size()
    names["model"](torch.full((1, 10), rank + 1.0)).sum().backward()
    near([names["model"].module.weight.grad], [np.full((10, 10), (size + 1) / 2)])  # the average of 1, 2, ...
    dist.destroy_process_group()


@checks("docs/zero_redundancy_optimizer.md", 0)
def shared_out_optimizer(run):
    import torch
    import torch.distributed as dist
    from torch.distributed.optim import ZeroRedundancyOptimizer
    dist.init_process_group("lockstep")
    model, loader = linear_and_batches(dist.get_rank(), dist.get_world_size())
    names = run({"torch": torch, "model": model, "DistributedDataParallel": torch.nn.parallel.DistributedDataParallel,
                 "ZeroRedundancyOptimizer": ZeroRedundancyOptimizer})
    for data, target in loader:
        names["optimizer"].zero_grad()
        torch.nn.functional.cross_entropy(names["ddp"](data), target).backward()
        names["optimizer"].step()
    near(numbers_of(model), trained(lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1)))
    dist.destroy_process_group()


@checks("docs/horovod.md", 0)
def horovod_for_torch(run):
    import torch

    import lockstep.horovod.torch as hvd
    hvd.init()
    size = hvd.size()
    model, loader = linear_and_batches(hvd.rank(), size)
    if hvd.rank() > 0:
        torch.nn.init.zeros_(model.weight)  # the example begins with rank 0's
    run({"torch": torch, "model": model, "loader": loader, "criterion": torch.nn.CrossEntropyLoss()})
    near(numbers_of(model), trained(lambda parameters: torch.optim.SGD(parameters, lr=0.1 * size, momentum=0.9)), 2e-3)  # fp16 on the way
    hvd.shutdown()


@checks("python/README.md", 1)
def numpy_gradient(run):
    import lockstep
    averages = []
    with mock.patch.object(lockstep, "shutdown", lambda: averages.append(names["gradient"].copy())):  # its memory ends with the group
        names = {}
        run(names)
    near(averages, [np.full(1_000_000, (lockstep.size() - 1) / 2)])
    lockstep.shutdown()


# -------------------------------------------------------------------------------------------------------- TensorFlow, Keras, JAX

def gradients_by_hand(parameters, data, target):
    """Of the mean cross entropy of softmax(data @ kernel + bias)."""
    kernel, bias = parameters
    share = np.exp(data @ kernel + bias)
    share /= share.sum(1, keepdims=True)
    share[np.arange(len(target)), target] -= 1
    return [data.T @ share / len(target), share.mean(0)]


class OneLayer:
    """A rank's part of a batch, values of a layer that differ between ranks, and what the ranks have after some steps of SGD."""

    LR = 0.1

    def __init__(self, rank, size):
        data, target = given(seed=1)
        self.parts = [(data[r::size], target[r::size]) for r in range(size)]
        self.starts = [[start + 0.1 * r for start in (np.arange(12, dtype=np.float32).reshape(4, 3) / 10, np.zeros(3, np.float32))]
                       for r in range(size)]
        self.part, self.start = self.parts[rank], self.starts[rank]

    def descended(self, starts, rates=(LR, LR, LR), momentum=0.0):
        """Rank 0's values: the first step's gradients are those of `starts`, the later ones those of rank 0's values."""
        values, velocities = starts[0], [0, 0]
        for rate in rates:
            each = [gradients_by_hand(start, *part) for start, part in zip(starts, self.parts)]
            velocities = [momentum * velocity - rate * np.mean(gradients, 0) for velocity, gradients in zip(velocities, zip(*each))]
            values = [value + velocity for value, velocity in zip(values, velocities)]
            starts = [values] * len(self.parts)
        return values

    def keras_names(self):
        import keras
        self.model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        self.model.set_weights(self.start)
        return {"model": self.model, "optimizer": keras.optimizers.SGD(self.LR),
                "loss_fn": keras.losses.SparseCategoricalCrossentropy(from_logits=True)}


def of_this_rank():
    """Before the example makes the group."""
    return OneLayer(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))


@checks("python/README.md", 2)
def imports(run):
    names = run({})
    assert names["hvd"].DistributedGradientTape and names["lt"].all_reduce_gradients and names["lj"].all_reduce


@checks("docs/horovod.md", 1)
def horovod_for_tensorflow(run):
    import tensorflow as tf

    import lockstep.horovod.tensorflow as hvd
    hvd.init()
    task = OneLayer(hvd.rank(), hvd.size())
    names = run({"tf": tf, **task.keras_names()})
    for batch in range(3):
        names["step"](*task.part, batch == 0)
    near(task.model.get_weights(), task.descended(task.starts), 1e-3)  # fp16 on the way
    hvd.shutdown()


@checks("docs/horovod.md", 2)
def horovod_for_keras(run):
    import keras

    import lockstep.horovod.keras as hvd
    keras.config.disable_interactive_logging()  # no progress bars
    hvd.init()
    size = hvd.size()
    task = OneLayer(hvd.rank(), size)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
    model.set_weights(task.start)
    run({"keras": keras, "model": model, "images": task.part[0], "labels": task.part[1]})
    rates = [0.1 * (1 + (size - 1) * min(epoch / 5, 1)) for epoch in range(1, 11)]  # Goyal et al., section 2.2; a batch an epoch
    near(model.get_weights(), task.descended(task.starts, rates, momentum=0.9))
    hvd.shutdown()


@checks("docs/python.md", 1)
def step_of_tensorflow(run):
    import lockstep
    task = of_this_rank()
    names = run(task.keras_names())
    for _ in range(3):
        names["step"](*task.part)
    near(task.model.get_weights(), task.descended([task.starts[0]] * lockstep.size()))
    lockstep.shutdown()


@checks("docs/python.md", 2)
def step_of_jax(run):
    import jax

    import lockstep
    task = of_this_rank()

    def loss_fn(parameters, batch):
        data, target = batch
        logarithms = jax.nn.log_softmax(data @ parameters[0] + parameters[1])
        return -logarithms[np.arange(len(target)), target].mean()
    names = run({"parameters": task.start, "loss_fn": loss_fn})
    parameters = names["parameters"]
    for _ in range(3):
        parameters, _ = names["step"](parameters, task.part)
    near(parameters, task.descended([task.starts[0]] * lockstep.size()))
    lockstep.shutdown()


# -------------------------------------------------------------------------------------------------------------------------------------

def run_examples(library):
    found = examples()
    for missing in found.keys() ^ (CHECKS.keys() | ELSEWHERE):
        sys.exit(f"the page's example and its function here do not belong together: {missing}")
    ran = 0
    for (page, number), check in CHECKS.items():
        line, text = found[page, number]
        if library_of(text) != library:
            continue

        def run(names, code=compile("\n" * line + text, str(ROOT / page), "exec")):
            exec(code, names)
            return names
        check(run)
        ran += 1
    assert ran > 3, ran
    return ran


if __name__ == "__main__":
    print(f"examples run: {run_examples(sys.argv[1])}")
