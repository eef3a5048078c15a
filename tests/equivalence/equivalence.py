"""Training with N processes equals training with one, and Python's DistributedDataParallel over Gloo: the same weights and
batches, by file, for 100 steps.

    equivalence.py build/lockstep build/tests/equivalence/equivalence cases_ddp [CASE ...]      # a Python with torch and safetensors

Every case is trained
  * by the C++ program (its namesake in cases_*.cpp) with 1, 2, 3 and 4 processes;
  * by real Python in one process without DDP, which takes the N shares of each batch in turn;
  * by real Python with DDP over Gloo in 2 processes.
Compared are the loss of every step (mean over the ranks), the gradients of the first and the last step, and the parameters and
buffers at the end: float64 to 1e-12, float32 to 1e-4, relative to the largest value of the tensor. Parameters must be bit-identical
on all ranks of the C++ program. The loss must fall, or the comparison would mean little. Printed is the largest distance seen.

To add a case
  1. cases_NAME.py: a subclass of Case (below) with the model, the data and the loss. The docstring says what it is for.
         class clipping(Case):
             def model(self): return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
             def data(self): return {"x": torch.randn(10, BATCH, 6), "y": torch.randn(10, BATCH, 3)}
             def loss(self, model, share): return nn.functional.mse_loss(model(share["x"]), share["y"])
             def after_backward(self, model): nn.utils.clip_grad_norm_(model.parameters(), 0.1)
     Whatever is not like that overrides train(). The same train() is run by both Python programs; only the `place` differs.
  2. cases_NAME.cpp: EQUIVALENCE_CASE(clipping) { ... }, see equivalence.h; add the file to CMakeLists.txt and, for a new
     cases_NAME.py, its name to the loop there.
Where Python's DDP or one process cannot be the model of a case (another answer by design), `compare_with` leaves it out and the
docstring says why.
"""
import importlib
import os
import subprocess
import sys
import tempfile
import traceback
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch import nn

STEPS, BATCH, GLOO_RANKS = 100, 48, 2  # 48 samples: equal shares for 1, 2, 3 and 4 ranks, with up to two micro-batches
ALLOWED = {torch.float64: 1e-12, torch.float32: 1e-4}


class Case:
    """One row of the suite. `ddp` are options of Python's DDP."""
    ranks = (1, 2, 3, 4)
    dtypes = (torch.float64, torch.float32)
    compare_with = ("one process", "gloo")
    steps = STEPS
    micros = 1  # backward passes per step, all but the last under no_sync
    ddp = {}
    allowed = None  # relative distance, in place of ALLOWED
    falls = True  # whether the last loss must be below the first

    def models(self):
        return {"model": self.model()}

    def optimizer(self, models):
        return torch.optim.SGD(models["model"].parameters(), lr=0.05, momentum=0.9)

    def after_backward(self, model):
        """Between backward and the optimiser's step, with the averaged gradients; `model` is not wrapped."""

    def train(self, place):
        models = self.models()
        place.load(models)
        wrapped = {name: place.wrap(model, **self.ddp) for name, model in models.items()}
        optimizer = self.optimizer(models)
        for place.step in range(self.steps):
            optimizer.zero_grad()
            losses = place.backward(wrapped["model"], self.loss, self.micros)
            self.after_backward(models["model"])
            place.record_gradients(models)
            optimizer.step()
            place.record_loss(losses)
        place.record_state(models)


class Place:
    """Where a case is trained; what both have in common."""

    def __init__(self, case, path, ranks):
        self.case, self.file, self.ranks, self.record, self.losses = case, load_file(path), ranks, {}, []
        self.step, self.steps, self.dtype = 0, case.steps, self.file["dtype"].dtype

    def share(self, rank, micro=0, micros=1):
        """Rank `rank`'s part of this step's batch. Knows its step and rank, for cases that treat them differently."""
        part = BATCH // (micros * self.ranks)
        at = (micro * self.ranks + rank) * part
        share = Share({name: self.file[name][self.step % len(self.file[name])][at:at + part] for name in self.case.names})
        share.step, share.rank = self.step, rank
        return share

    def load(self, models):
        for prefix, model in models.items():
            model.to(self.dtype)
            state = {name: self.file[f"{prefix}.{name}"] for name in model.state_dict()}
            model.load_state_dict(state)

    def record_gradients(self, models):
        if self.step not in (0, self.steps - 1):
            return
        when = "first" if self.step == 0 else "last"
        for prefix, model in models.items():
            for name, p in model.named_parameters():
                if p.grad is not None:
                    self.record[f"{when}_grad.{prefix}.{name}"] = p.grad.detach().to_dense().clone()

    def record_state(self, models):
        for prefix, model in models.items():
            for name, value in model.state_dict().items():
                self.record[f"state.{prefix}.{name}"] = value.detach().clone()
        self.record["loss"] = torch.tensor(self.losses, dtype=torch.float64)


class Share(dict):
    step = rank = 0


class OneProcess(Place):
    """No DDP: the shares of all ranks in turn. Buffers are those that rank 0 would have."""

    def wrap(self, model, **options):
        return model

    def backward(self, model, loss_of, micros=1):
        losses = []
        for micro in range(micros):
            before = {name: b.clone() for name, b in model.named_buffers()}
            for rank in range(self.ranks):
                if rank == 1:
                    after = {name: b.clone() for name, b in model.named_buffers()}
                if rank > 0:
                    self.set_buffers(model, before)
                loss = loss_of(model, self.share(rank, micro, micros))
                (loss / self.ranks).backward()
                losses.append(loss.item())
            if self.ranks > 1:
                self.set_buffers(model, after)
        return losses

    @staticmethod
    def set_buffers(model, values):
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.data = values[name].clone()

    def record_loss(self, losses):
        self.losses.append(sum(losses) / len(losses))


class Gloo(Place):
    """One of several processes with Python's DDP."""

    def load(self, models):
        if dist.get_rank() == 0:
            super().load(models)
        for model in models.values():
            model.to(self.dtype)

    def wrap(self, model, **options):
        return nn.parallel.DistributedDataParallel(model, **options)

    def backward(self, model, loss_of, micros=1):
        losses = []
        for micro in range(micros):
            with model.no_sync() if micro < micros - 1 else nullcontext():
                loss = loss_of(model, self.share(dist.get_rank(), micro, micros))
                loss.backward()
            losses.append(loss.item())
        return losses

    def record_loss(self, losses):
        mean = torch.tensor(sum(losses) / len(losses), dtype=torch.float64)
        dist.all_reduce(mean)
        self.losses.append(mean.item() / self.ranks)


# ------------------------------------------------------------------------------------------------------------- programs


def path_of(folder, name, dtype, what):
    return os.path.join(folder, f"{name}.{str(dtype)[6:]}.{what}.safetensors")


def save(record, path):
    save_file({name: value.contiguous() for name, value in record.items()}, path)


def make_input(case, dtype, path):
    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)
    data = case.data()
    state = {f"{prefix}.{name}": v for prefix, m in case.models().items() for name, v in m.state_dict().items()}
    torch.set_default_dtype(torch.float32)
    to = lambda t: (t.to(dtype) if t.is_floating_point() else t).clone()
    save({name: to(t) for name, t in {**data, **state}.items()}
         | {"steps": torch.tensor(case.steps), "dtype": torch.zeros(1, dtype=dtype)}, path)
    case.names = list(data)


def each(cases):
    return [(name, case, dtype) for name, case in cases.items() for dtype in case.dtypes]


def gloo_rank(rank, cases, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "store"), rank=rank, world_size=GLOO_RANKS)
    for name, case, dtype in each(cases):
        if "gloo" not in case.compare_with:
            continue
        torch.manual_seed(100 + rank)  # weights that differ until DDP makes them equal
        place = Gloo(case, path_of(folder, name, dtype, "in"), GLOO_RANKS)
        case.train(place)
        if rank == 0:
            save(place.record, path_of(folder, name, dtype, "gloo"))
    dist.destroy_process_group()


def one_process(cases, folder):
    for name, case, dtype in each(cases):
        if "one process" not in case.compare_with:
            continue
        for ranks in case.ranks:
            place = OneProcess(case, path_of(folder, name, dtype, "in"), ranks)
            case.train(place)
            save(place.record, path_of(folder, name, dtype, f"alone{ranks}"))


def ours(lockstep, program, cases, folder):
    for ranks in sorted({n for case in cases.values() for n in case.ranks}):
        arguments = []
        for name, case, dtype in each(cases):
            if ranks in case.ranks:
                arguments += [name, path_of(folder, name, dtype, "in"), path_of(folder, name, dtype, f"ours{ranks}")]
        subprocess.run([lockstep, "run", "-n", str(ranks), "--no-logs", program, *arguments], check=True)


# ----------------------------------------------------------------------------------------------------------- comparison


def distance(ours, expected):
    """Largest difference, relative to the largest value."""
    if ours.shape != expected.shape or ours.dtype != expected.dtype:
        return float("inf")
    if ours.numel() == 0 or torch.equal(ours, expected):
        return 0.0
    ours, expected = (t.to(torch.complex128 if t.is_complex() else torch.float64) for t in (ours, expected))
    scale = expected.abs().max().item() or 1.0
    worst = (ours - expected).abs().max().item() / scale
    return worst if worst == worst else float("inf")


def compare(case, dtype, ours, expected):
    """What is wrong, as lines; and the largest distance."""
    names = sorted(set(ours) | set(expected))
    problems = [f"only one side has {name}" for name in names if name not in ours or name not in expected]
    allowed = case.allowed or ALLOWED[dtype]
    worst = 0.0
    for name in names:
        if name in ours and name in expected:
            found = distance(ours[name], expected[name])
            worst = max(worst, found)
            if found > allowed:
                problems.append(f"{name} is off by {found:.1e}, allowed {allowed:.0e}")
    if case.falls and not expected["loss"][-1] < 0.9 * expected["loss"][0]:
        problems.append(f"the comparison means nothing: the loss went from {expected['loss'][0]} to {expected['loss'][-1]}")
    if len(expected["loss"]) != case.steps:
        problems.append(f"{len(expected['loss'])} losses for {case.steps} steps")
    return problems, worst


def compare_all(cases, folder):
    failed = False
    for name, case, dtype in each(cases):
        pairs = [(f"{n} as one", f"ours{n}", f"alone{n}") for n in case.ranks if "one process" in case.compare_with]
        if "gloo" in case.compare_with:
            pairs.append((f"{GLOO_RANKS} as Gloo", f"ours{GLOO_RANKS}", "gloo"))
        seen = []
        for what, left, right in pairs:
            problems, worst = compare(case, dtype, *(load_file(path_of(folder, name, dtype, side)) for side in (left, right)))
            seen.append(f"{what} {worst:.0e}")
            for problem in problems:
                failed = True
                print(f"*** {name} {dtype}, {what}: {problem}")
        print(f"{name} {dtype}: " + ", ".join(seen))
    return failed


def main():
    lockstep, program, module, *chosen = sys.argv[1:]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    found = importlib.import_module(module)
    cases = {name: kind() for name, kind in vars(found).items()
             if isinstance(kind, type) and issubclass(kind, found.Case) and kind.__module__ == module and not name.startswith("_")}
    cases = {name: case for name, case in cases.items() if not chosen or name in chosen}
    assert cases, "no such case"
    with tempfile.TemporaryDirectory() as folder:
        for name, case, dtype in each(cases):
            make_input(case, dtype, path_of(folder, name, dtype, "in"))
        # Not for nothing: a Gloo rank that leaves at once breaks the connecting of one that is not through with it.
        if any("gloo" in case.compare_with for case in cases.values()):
            mp.start_processes(gloo_rank, args=(cases, folder), nprocs=GLOO_RANKS, start_method="fork")
        one_process(cases, folder)
        ours(lockstep, program, cases, folder)
        sys.exit(1 if compare_all(cases, folder) else 0)


if __name__ == "__main__":
    sys.modules["equivalence"] = sys.modules["__main__"]  # what the cases import
    main()
