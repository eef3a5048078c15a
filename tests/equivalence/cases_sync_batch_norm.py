"""SyncBatchNorm: N processes with a share each train as one with the whole batch and plain BatchNorm. Python's SyncBatchNorm
refuses CPU tensors, so Gloo is no model."""
import torch
from torch import nn

from cases_ddp import mse
from equivalence import BATCH, Case, Share


class sync_batch_norm(Case):
    """A convolutional net with two-dimensional and plain batch normalisation, the latter with a cumulative average."""
    compare_with = ("one process",)

    def model(self):
        return nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(),
                             nn.Linear(144, 8, bias=False), nn.BatchNorm1d(8, momentum=None), nn.Tanh(), nn.Linear(8, 3))

    def data(self):
        x = torch.randn(10, BATCH, 1, 8, 8)
        return {"x": x, "y": torch.tanh(x.flatten(2)[..., :6] @ torch.randn(6, 3))}

    loss = staticmethod(mse)

    def train(self, place):
        models = self.models()
        place.load(models)
        model, optimizer = models["model"], self.optimizer(models)
        for place.step in range(self.steps):
            optimizer.zero_grad()
            whole = Share({name: place.file[name][place.step % len(place.file[name])] for name in self.names})
            loss = self.loss(model, whole)
            loss.backward()
            place.record_gradients(models)
            optimizer.step()
            place.record_loss([loss.item()])
        place.record_state(models)


class convert_sync_batchnorm(sync_batch_norm):
    """The same with torch::nn::BatchNorm layers that were converted."""
