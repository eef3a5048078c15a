"""What is built on the verbs of torch.distributed, over Lockstep and over Gloo. Run by torch_test.py."""
import copy
import shutil
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from torch_ranks import Ranks


class Net(nn.Module):
    """`part` decides which of two layers a step uses, for unused parameters."""

    def __init__(self):
        super().__init__()
        self.first, self.a, self.b, self.last = nn.Linear(64, 300), nn.Linear(300, 300), nn.Linear(300, 300), nn.Linear(300, 10)

    def forward(self, x, part=None):
        x = torch.relu(self.first(x))
        if part != 1:
            x = torch.relu(self.a(x))
        if part != 0:
            x = torch.relu(self.b(x))
        return self.last(x)


def train(rank, group, steps=6, hook=None, no_sync=False, parts=False, optimizer=None, wrap=None, **options):
    torch.manual_seed(1)
    net = Net()
    model = wrap(net) if wrap else DistributedDataParallel(net, process_group=group, **options)
    if hook:
        model.register_comm_hook(*hook(group))
    stepper = optimizer(model.parameters()) if optimizer else torch.optim.AdamW(model.parameters(), 1e-3)
    torch.manual_seed(100 + rank)
    for step in range(steps):
        stepper.zero_grad()
        if no_sync:
            with model.no_sync():
                model(torch.randn(8, 64)).square().mean().backward()
        model(torch.randn(8, 64), *([step % 2] if parts else [])).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        stepper.step()
    return model, stepper


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


class DataParallel(Ranks):
    MODES = {"plain": {}, "several buckets": {"bucket_cap_mb": 0.2}, "views": {"gradient_as_bucket_view": True},
             "static graph": {"static_graph": True}, "unused": {"find_unused_parameters": True, "parts": True},
             "no_sync": {"no_sync": True}, "views, no_sync, unused": {"gradient_as_bucket_view": True, "no_sync": True,
                                                                     "find_unused_parameters": True, "parts": True}}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gloo = dist.new_group(backend="gloo")

    # With two ranks both add a + b. With more, Gloo's sum depends on its ring.
    def as_gloo(self, ours, theirs, **tolerance):
        if self.size == 2:
            self.equal(ours, theirs)
        else:
            torch.testing.assert_close(ours, theirs, **tolerance)

    def test_is_as_over_gloo(self):
        for name, options in self.MODES.items():
            with self.subTest(name):
                ours = weights(train(self.rank, None, **options)[0])
                self.the_same_on_all_ranks(ours)
                self.as_gloo(ours, weights(train(self.rank, self.gloo, **options)[0]))

    def test_adopts_buckets(self):
        if self.size == 1:
            return
        model, _ = train(self.rank, None, gradient_as_bucket_view=True)
        address = model.module.a.weight.grad.data_ptr()
        with open("/proc/self/maps") as maps:
            mine = [line for line in maps if int(line.split("-")[0], 16) <= address < int(line.split("-")[1].split()[0], 16)]
        self.assertIn("memfd:", mine[0])
        loader = torch.utils.data.DataLoader(range(8), batch_size=4, num_workers=1, multiprocessing_context="fork")
        self.assertEqual([batch.tolist() for batch in loader], [[0, 1, 2, 3], [4, 5, 6, 7]])
        before = model.module.a.weight.grad.clone()
        del model, loader
        self.assertTrue(before.isfinite().all())
        self.the_same_on_all_ranks(weights(train(self.rank, None)[0]))

    def test_hooks(self):
        def power(group):
            return powerSGD_hook.PowerSGDState(group, 1, start_powerSGD_iter=2, min_compression_rate=0.5), powerSGD_hook.powerSGD_hook
        compress = lambda group: (group, default_hooks.fp16_compress_hook)  # noqa: E731
        ours = weights(train(self.rank, None, hook=compress, bucket_cap_mb=0.2)[0])
        self.as_gloo(ours, weights(train(self.rank, self.gloo, hook=compress, bucket_cap_mb=0.2)[0]), rtol=0.01, atol=1e-3)
        for cap in (25, 0.2):
            self.the_same_on_all_ranks(weights(train(self.rank, None, hook=power, bucket_cap_mb=cap, steps=8)[0]))

    def test_uneven_inputs(self):
        def joined(group):
            torch.manual_seed(1)
            model = DistributedDataParallel(Net(), process_group=group)
            stepper = torch.optim.SGD(model.parameters(), 0.1)
            with model.join():
                for step in range(2 + self.rank):
                    stepper.zero_grad()
                    model(torch.full((4, 64), 0.1 * (self.rank + step))).square().mean().backward()
                    stepper.step()
            return weights(model)
        ours = joined(None)
        self.the_same_on_all_ranks(ours)
        self.as_gloo(ours, joined(self.gloo))

    def test_zero_redundancy_optimizer(self):
        zero = weights(train(self.rank, None, optimizer=lambda p: ZeroRedundancyOptimizer(p, torch.optim.AdamW, lr=1e-3))[0])
        self.equal(zero, weights(train(self.rank, None)[0]))

    def test_fsdp2_and_checkpoint(self):
        mesh = init_device_mesh("cpu", (self.size,))
        def shard(net, from_group):
            for layer in (net.first, net.a, net.b, net.last):
                fully_shard(layer, mesh=mesh)
            model = fully_shard(net, mesh=mesh)
            if from_group:
                model.set_allocate_memory_from_process_group_for_comm(True)
            return model
        plain = weights(train(self.rank, None)[0])
        for from_group in (False, True):
            model, _ = train(self.rank, None, wrap=lambda net: shard(net, from_group))
            full = torch.cat([p.full_tensor().detach().reshape(-1) for p in model.parameters()])
            torch.testing.assert_close(full, plain)
        folder = [tempfile.mkdtemp() if self.rank == 0 else None]
        dist.broadcast_object_list(folder)
        checkpoint.save(model.state_dict(), checkpoint_id=folder[0])
        wanted = {name: value.full_tensor().clone() for name, value in model.state_dict().items()}
        state = copy.deepcopy(model.state_dict())
        for value in state.values():
            value.to_local().zero_()
        checkpoint.load(state, checkpoint_id=folder[0])
        for name, value in state.items():
            self.equal(value.full_tensor(), wanted[name])
        dist.barrier()
        if self.rank == 0:
            shutil.rmtree(folder[0])
