"""The peer of examples/cifar10_resnet18: the same training in Python, with DistributedDataParallel over Gloo.

    lockstep run -n 2 --no-affinity python bench/accuracy/cifar10_peer.py --data FOLDER --epochs 10 --seed 0 --metrics FILE

The options are those of the example. Weights, order and augmentation are drawn anew from the seed: alike in kind, not in value.
"""
import argparse
import gzip
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data.distributed import DistributedSampler

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "testing"))
import gloo_peer  # noqa: E402
from resnet import ResNet  # noqa: E402

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
STD = torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1)


def read(folder, name):
    """(images, targets) of one file, plain or .gz."""
    path = folder / name
    content = path.read_bytes() if path.exists() else gzip.decompress((folder / (name + ".gz")).read_bytes())
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32).clone(), records[:, 0].long()


def normalised(images):
    return images.float().div_(255).sub_(MEAN).div_(STD)


def augmented(images):
    """RandomCrop(32, padding=4) and RandomHorizontalFlip() of each image by itself, before normalising as torchvision does."""
    padded = nn.functional.pad(images, (4, 4, 4, 4))
    result = torch.empty_like(images)
    for i, (top, left, flips) in enumerate(zip(*torch.randint(9, (2, len(images))).tolist(), (torch.rand(len(images)) < 0.5).tolist())):
        crop = padded[i, :, top:top + 32, left:left + 32]
        result[i] = crop.flip(2) if flips else crop
    return normalised(result)


def count_correct(model, images, targets):
    model.eval()
    correct = 0
    with torch.no_grad():
        for at in range(250 * dist.get_rank(), len(images), 250 * dist.get_world_size()):
            correct += (model(normalised(images[at:at + 250])).argmax(1) == targets[at:at + 250]).sum().item()
    model.train()
    return correct


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, required=True)
    for name, kind, default in (("train-files", int, 5), ("images", int, 50000), ("epochs", int, 30), ("batch-size", int, 128),
                                ("lr", float, 0.1), ("seed", int, 0), ("width", int, 64), ("metrics", str, "")):
        parser.add_argument("--" + name, type=kind, default=default)
    parser.add_argument("--imagenet-stem", action="store_true")
    return parser.parse_args()


def main():
    args = parse()
    dist.init_process_group("gloo")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    parts = [read(args.data, f"data_batch_{i}.bin") for i in range(1, args.train_files + 1)]
    images, targets = (torch.cat(part)[:args.images] for part in zip(*parts))
    test = read(args.data, "test_batch.bin")
    torch.manual_seed(args.seed)
    model = ResNet(18, num_classes=10, cifar=not args.imagenet_stem, width=args.width)
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    sampler = DistributedSampler(range(len(images)), seed=args.seed)
    torch.manual_seed(1000 * args.seed + dist.get_rank())  # of the augmentation
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        start = time.monotonic()
        loss_sum = 0.0
        for batch in torch.tensor(list(sampler)).split(args.batch_size):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(ddp(augmented(images[batch])), targets[batch])
            loss.backward()
            optimizer.step()
            loss_sum += loss.item() * len(batch)
        seconds = time.monotonic() - start
        schedule.step()
        sums = torch.tensor([loss_sum, len(sampler), count_correct(model, *test)], dtype=torch.float64)
        dist.all_reduce(sums)
        if dist.get_rank() == 0 and args.metrics:
            with open(args.metrics, "a") as file:
                print(json.dumps({"train_loss": (sums[0] / sums[1]).item(), "test_accuracy": sums[2].item() / len(test[1]),
                                  "images_per_second": sums[1].item() / seconds}), file=file)
    gloo_peer.leave()


if __name__ == "__main__":
    main()
