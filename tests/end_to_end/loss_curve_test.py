"""The loss curve of Lockstep's DDP is that of Python's DDP over Gloo: same model, weights, data, optimiser; 2 processes, 100 steps.

    loss_curve_test.py build/lockstep build/tests/loss_curve        # with a Python that has torch and safetensors

Each loss (mean over the ranks) may differ by 1e-4. The labels are learnable, so the curve falls; that is checked as well.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "testing"))
import gloo_peer  # noqa: E402

RANKS, STEPS, BATCHES, BATCH, TOLERANCE = 2, 100, 10, 32, 1e-4


class SimpleCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, kernel_size=3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(64 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, 10)
        self.relu = nn.ReLU()

    def forward(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        return self.fc2(self.relu(self.fc1(x.reshape(-1, 64 * 7 * 7))))


def make_file(path):
    torch.manual_seed(7)
    tensors = {"model." + name: p.detach().clone() for name, p in SimpleCNN().named_parameters()}
    tensors["target"] = torch.randint(10, (BATCHES, BATCH))
    patterns = torch.randn(10, 1, 28, 28)  # one per class, under noise
    tensors["data"] = patterns[tensors["target"]] + torch.randn(BATCHES, BATCH, 1, 28, 28)
    save_file({name: t.contiguous() for name, t in tensors.items()}, path)


def python_rank(rank, path, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "store"), rank=rank, world_size=RANKS)
    file = load_file(path)
    model = SimpleCNN()
    if rank == 0:
        model.load_state_dict({k[len("model."):]: v for k, v in file.items() if k.startswith("model.")})
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.9)
    mine = slice(rank * BATCH // RANKS, (rank + 1) * BATCH // RANKS)
    losses = []
    for step in range(STEPS):
        data, target = (file[name][step % BATCHES][mine] for name in ("data", "target"))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(data), target)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / RANKS)
    if rank == 0:
        torch.save(losses, os.path.join(folder, "losses"))


def main():
    lockstep, program = sys.argv[1:]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "curve.safetensors")
        make_file(path)
        gloo_peer.spawn(python_rank, (path, folder), RANKS)
        python = torch.load(os.path.join(folder, "losses"))
        done = subprocess.run([lockstep, "run", "-n", str(RANKS), "--no-logs", "--no-prefix", program, path, str(STEPS)],
                              stdout=subprocess.PIPE, text=True, check=True)
        ours = [float(line) for line in done.stdout.split()]
    assert len(ours) == len(python) == STEPS, (len(ours), len(python))
    worst = max(abs(a - b) for a, b in zip(ours, python))
    print(f"loss {python[0]:.4f} to {python[-1]:.4f} in {STEPS} steps; largest difference {worst:.2e}, allowed {TOLERANCE:.0e}")
    assert python[-1] < 0.5 * python[0], "the comparison means nothing: Python's loss did not fall"
    assert worst <= TOLERANCE, [(i, a, b) for i, (a, b) in enumerate(zip(ours, python)) if abs(a - b) > TOLERANCE][:5]


if __name__ == "__main__":
    main()
