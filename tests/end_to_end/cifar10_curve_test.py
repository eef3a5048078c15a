"""ResNet-18 on CIFAR-10: the loss curve of Lockstep's DDP is that of Python's over Gloo, for the same weights and the same augmented
batches, by file; 2 processes, 100 steps of SGD with momentum, weight decay and a cosine schedule.

    cifar10_curve_test.py build/lockstep build/tests/cifar10_curve [--width 64] [--batch 128] [--result FILE.json]
    cifar10_curve_test.py build/lockstep build/tests/cifar10_curve --width 64 --batch 128 --steps 468 --images 10000 --test-images 2000
        --imagenet-stem --lr 0.05 --seed 3 --result FILE.json           a whole training, and the accuracy of both nets in the end

with a Python that has torch and safetensors. CTest runs it with a narrow net. Compared are the loss of each step (mean over the
ranks) and the weights and statistics at the end, relative to the largest value of each tensor. With batches this small one bit
that differs is all of the loss ten steps later, so both sides take libtorch's SGD, not one of another rounding.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT.parent / "testing")]
import cifar_data  # noqa: E402
import gloo_peer  # noqa: E402
from resnet import ResNet  # noqa: E402

RANKS = 2
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
LOSS_TOLERANCE, STATE_TOLERANCE = 1e-4, 1e-3  # of float32; rounding that differs in one place grows from step to step


def net_of(args):
    return ResNet(18, num_classes=10, cifar=not args.imagenet_stem, width=args.width)


def python_rank(rank, folder, args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    file = load_file(f"{folder}/batches.safetensors")
    model = net_of(args)
    if rank == 0:
        model.load_state_dict(load_file(f"{folder}/weights.safetensors"))
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    steps, batch = file["target"].shape
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    mine = slice(rank * batch // RANKS, (rank + 1) * batch // RANKS)
    losses = []
    for data, target in zip(file["data"], file["target"]):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(data[mine]), target[mine])
        loss.backward()
        optimizer.step()
        schedule.step()
        mean = loss.detach().double()
        dist.all_reduce(mean)
        losses.append(mean.item() / RANKS)
    if rank == 0:
        save_file(model.state_dict() | {"loss": torch.tensor(losses, dtype=torch.float64)}, f"{folder}/python.safetensors")


def timed(work):
    start = time.monotonic()
    work()
    return round(time.monotonic() - start, 1)


def train_both(args, folder):
    """What each side recorded, and the seconds each took."""
    data = pathlib.Path(folder) / "cifar10"
    data.mkdir()
    cifar_data.cut_all(data, args.images, max(args.test_images, 1))
    file = {name: f"{folder}/{name}.safetensors" for name in ("batches", "weights", "ours", "python")}
    subprocess.run([args.program, "batches", data, str(args.steps), str(args.batch), str(args.seed), file["batches"]], check=True)
    torch.manual_seed(args.seed)
    save_file(net_of(args).state_dict(), file["weights"])
    launch = [args.lockstep, "run", "-n", str(RANKS), "--no-logs", "--no-prefix"]
    words = ["train", file["batches"], file["weights"], str(args.width), "imagenet" if args.imagenet_stem else "cifar", str(args.lr), file["ours"]]
    seconds = {"lockstep": timed(lambda: subprocess.run([*launch, args.program, *words], check=True)),
               "python": timed(lambda: gloo_peer.spawn(python_rank, (folder, args), RANKS))}
    return load_file(file["ours"]), load_file(file["python"]), seconds


def accuracy(state, args):
    """Of the first test images, by one process."""
    records = torch.frombuffer(bytearray(cifar_data.cifar("test_batch.bin", args.test_images)), dtype=torch.uint8).view(-1, cifar_data.RECORD)
    images = records[:, 1:].view(-1, 3, 32, 32).float().div(255).sub(torch.tensor(MEAN).view(3, 1, 1)).div(torch.tensor(STD).view(3, 1, 1))
    model = net_of(args)
    model.load_state_dict(state)
    model.eval()
    with torch.no_grad():
        answers = torch.cat([model(batch).argmax(1) for batch in images.split(250)])
    return answers.eq(records[:, 0]).double().mean().item()


def distance(ours, expected):
    scale = expected.abs().max().item() or 1.0
    return (ours.double() - expected.double()).abs().max().item() / scale


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("program")
    parser.add_argument("--width", type=int, default=8, help="channels of the first stage; ResNet-18 has 64")
    parser.add_argument("--batch", type=int, default=32, help="images of all ranks together")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--images", type=int, default=2000, help="to train with")
    parser.add_argument("--test-images", type=int, default=0, help="to measure accuracy with in the end; then nothing is asserted")
    parser.add_argument("--imagenet-stem", action="store_true")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1, help="of weights, order and augmentation")
    parser.add_argument("--result", help="where to leave the two curves")
    args = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        ours, python, seconds = train_both(args, folder)
    curve, expected = ours.pop("loss"), python.pop("loss")
    assert list(curve.shape) == list(expected.shape) == [args.steps], (curve.shape, expected.shape)
    assert set(ours) == set(python), set(ours) ^ set(python)
    worst_loss = (curve - expected).abs().max().item()
    worst_state = {name: distance(ours[name], python[name]) for name in python}
    name = max(worst_state, key=worst_state.get)
    print(f"loss {expected[:5].mean():.4f} to {expected[-5:].mean():.4f} in {args.steps} steps; largest difference {worst_loss:.2e}, "
          f"allowed {LOSS_TOLERANCE:.0e}; of the state at the end {worst_state[name]:.2e} ({name}), allowed "
          f"{STATE_TOLERANCE:.0e}; seconds {seconds}")
    if args.result:
        result = {"what": " ".join(__doc__.split("\n\n")[0].split()), "date": time.strftime("%Y-%m-%d"), "torch": torch.__version__, "width": args.width,
                  "batch": args.batch, "ranks": RANKS, "largest_difference_of_loss": worst_loss,
                  "largest_difference_of_state": worst_state[name], "lockstep": curve.tolist(), "python": expected.tolist(),
                  **({"accuracy": {"lockstep": accuracy(ours, args), "python": accuracy(python, args)}, "seconds": seconds} if args.test_images else {})}
        pathlib.Path(args.result).write_text(json.dumps(result) + "\n")
    if args.test_images:
        return
    assert expected[-5:].mean() < 0.9 * expected[:5].mean(), "the comparison means nothing: Python's loss did not fall"
    assert worst_loss <= LOSS_TOLERANCE and worst_state[name] <= STATE_TOLERANCE


if __name__ == "__main__":
    main()
