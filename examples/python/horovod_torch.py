"""A Horovod program on Lockstep: ResNet-18 on CIFAR-10 with float16 compression and averaged metrics. Its import line changed.

    lockstep horovodrun -np 2 python examples/python/horovod_torch.py --data data/cifar10
    lockstep run -n 2 python examples/python/horovod_torch.py --data data/cifar10

It needs no torchvision: cifar10.py beside this file has ResNet-18 and reads CIFAR-10's binary version (scripts/download cifar10). On a
program with torchvision's data set and model nothing else changes. It trains on the CPU.
"""
import argparse

import torch
import torch.nn as nn
from cifar10 import Cifar10, ResNet18
from torch.utils.data import DataLoader

import lockstep.horovod.torch as hvd  # was: import horovod.torch as hvd


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data/cifar10", help="folder with CIFAR-10's binary files")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--images", type=int, default=None, help="train with only so many")
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--workers", type=int, default=4)
    return parser.parse_args()


def metric_average(val, name):
    """Averages a metric over all workers."""
    tensor = torch.tensor(val)
    avg_tensor = hvd.allreduce(tensor, name=name)
    return avg_tensor.item()


def train_horovod(args):
    hvd.init()
    torch.manual_seed(42)
    device = torch.device("cpu")
    dataset = Cifar10(args.data, args.images)
    train_sampler = torch.utils.data.distributed.DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
    train_loader = DataLoader(dataset, batch_size=args.batch_size, sampler=train_sampler, num_workers=args.workers)
    model = ResNet18(num_classes=10, width=args.width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size(), momentum=0.9, weight_decay=5e-4)
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16,
        op=hvd.Average,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        model.train()
        train_sampler.set_epoch(epoch)
        epoch_loss, correct, total = 0.0, 0, 0
        for data, target in train_loader:
            data, target = data.to(device), target.to(device)
            optimizer.zero_grad()
            output = model(data)
            loss = criterion(output, target)
            loss.backward()  # gradients are reduced meanwhile
            optimizer.step()
            epoch_loss += loss.item()
            _, predicted = output.max(1)
            total += target.size(0)
            correct += predicted.eq(target).sum().item()
        epoch_loss = metric_average(epoch_loss, "avg_loss")
        accuracy = metric_average(correct / total, "avg_accuracy")
        if hvd.rank() == 0:
            print(f"Epoch {epoch}/{args.epochs} - Loss: {epoch_loss:.4f}, Accuracy: {accuracy * 100:.2f}%")
            if (epoch + 1) % 10 == 0:
                torch.save(model.state_dict(), f"horovod_checkpoint_epoch_{epoch + 1}.pth")


if __name__ == "__main__":
    train_horovod(parse())
