"""CIFAR-10 and ResNet-18 for examples, without torchvision: read from the binary files, gzip or not."""
import gzip
import pathlib

import torch
from torch import nn

ROW = 1 + 3 * 32 * 32


class Cifar10(torch.utils.data.Dataset):
    """Images with random crop and flip, as the training of ResNets has them. files: data_batch_1 ..., as many as are there."""

    def __init__(self, folder, limit=None):
        rows = []
        for path in sorted(pathlib.Path(folder).glob("data_batch_*.bin*")):
            data = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
            rows.append(torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, ROW))
        if not rows:
            raise SystemExit(f"{folder} has no data_batch_1.bin: get CIFAR-10's binary version (scripts/download cifar10)")
        rows = torch.cat(rows)[:limit]
        self.targets = rows[:, 0].long()
        self.images = rows[:, 1:].view(-1, 3, 32, 32)

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        image = nn.functional.pad(self.images[index].float().div(127.5).sub(1), [4, 4, 4, 4], value=-1)
        top, left, flip = torch.randint(0, 9, (2,)).tolist() + torch.randint(0, 2, (1,)).tolist()
        image = image[:, top:top + 32, left:left + 32]
        return image.flip(-1) if flip else image, self.targets[index]


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet18(nn.Module):
    """torchvision's resnet18, with its names of parameters. width: channels of the first stage."""

    def __init__(self, num_classes=10, width=64):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        channels = width
        for stage in range(4):
            outputs = width * 2 ** stage
            setattr(self, f"layer{stage + 1}",
                    nn.Sequential(Block(channels, outputs, 1 if stage == 0 else 2), Block(outputs, outputs, 1)))
            channels = outputs
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, x):
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(x.mean((2, 3)))
