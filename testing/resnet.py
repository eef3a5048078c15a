"""ResNet in Python, from table 1 and figure 5 of "Deep Residual Learning for Image Recognition" and torchvision's parameter names, for
tests that compare with it where torchvision is not installed."""
import torch
from torch import nn


def norm_of(conv):
    return nn.BatchNorm2d(conv.out_channels)


class Residual(nn.Module):
    """`sizes`: the kernels of the convolutions, of which number `strided` has the stride."""

    def __init__(self, inputs, widths, sizes, strided, stride):
        super().__init__()
        self.count = len(sizes)
        shape_changes = stride != 1 or inputs != widths[-1]
        if shape_changes:  # made first, as in torchvision, because making it draws random numbers
            projection = nn.Conv2d(inputs, widths[-1], 1, stride, bias=False)
            downsample = nn.Sequential(projection, norm_of(projection))
        for i, (width, size) in enumerate(zip(widths, sizes)):
            conv = nn.Conv2d(inputs, width, size, stride if i == strided else 1, size // 2, bias=False)
            setattr(self, f"conv{i + 1}", conv)
            setattr(self, f"bn{i + 1}", norm_of(conv))
            inputs = width
        self.downsample = downsample if shape_changes else None

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.count:
                y = torch.relu(y)
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, depth, num_classes=1000, cifar=False, width=64, zero_init_residual=False):
        super().__init__()
        blocks = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}[depth]
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False) if cifar else nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = norm_of(self.conv1)
        self.pool = nn.Identity() if cifar else nn.MaxPool2d(3, 2, 1)
        inputs = width
        for stage, count in enumerate(blocks):
            layers = []
            planes = width * 2 ** stage
            for i in range(count):
                stride = 2 if stage > 0 and i == 0 else 1
                if depth < 50:
                    layers.append(Residual(inputs, (planes, planes), (3, 3), 0, stride))
                else:
                    layers.append(Residual(inputs, (planes, planes, 4 * planes), (1, 3, 1), 1, stride))
                inputs = planes if depth < 50 else 4 * planes
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(inputs, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if zero_init_residual:
            for module in self.modules():
                if isinstance(module, Residual):
                    nn.init.zeros_(getattr(module, f"bn{module.count}").weight)

    def forward(self, x):
        x = self.pool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))
