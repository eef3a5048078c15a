"""DistributedOptimizer and SyncBatchNorm of Horovod's interface, against torch in one process. horovod_test.py runs it."""
import unittest

import torch

import lockstep.horovod.torch as hvd


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rank, cls.size = hvd.rank(), hvd.size()

    def equal(self, actual, wanted):
        self.assertEqual(actual.dtype, wanted.dtype)
        self.assertTrue(torch.equal(actual, wanted), f"{actual} is not {wanted}")


def net(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))


class Optimizers(Ranks):
    """The batch of all ranks on one process is what the ranks' halves give together."""

    def batches(self, step):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(4 * self.size, 6, generator=generator)
        return x, x[4 * self.rank:4 * self.rank + 4]

    def train(self, make, passes=1, steps=5, clip=None):
        """Largest difference between the parameters of this rank and of one process that sees all batches."""
        model, alone = net(seed=self.rank), net(seed=0)
        optimizer = make(model)
        single = torch.optim.AdamW(alone.parameters(), lr=0.01)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        for step in range(steps):
            for part in range(passes):
                everyone, mine = self.batches(step * passes + part)
                model(mine).square().mean().backward()
                alone(everyone).square().mean().backward()
            if clip:
                optimizer.synchronize()
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
                torch.nn.utils.clip_grad_norm_(alone.parameters(), clip)
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()
            single.step()
            optimizer.zero_grad()
            single.zero_grad()
        flat = torch.cat([p.detach().flatten() for p in model.parameters()])
        everyone = hvd.allgather(flat.unsqueeze(0))
        self.assertTrue(all(torch.equal(one, flat) for one in everyone), "the ranks' parameters differ")
        return max((a - b).abs().max().item() for a, b in zip(model.parameters(), alone.parameters()))

    def adamw(self, model, **options):
        return hvd.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=0.01), named_parameters=model.named_parameters(), **options)

    def test_train_as_one_process(self):
        self.assertLess(self.train(self.adamw), 1e-5)
        self.assertLess(self.train(lambda model: hvd.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=0.01))), 1e-5)
        self.assertLess(self.train(lambda model: self.adamw(model, num_groups=2)), 1e-5)
        self.assertLess(self.train(lambda model: self.adamw(model, groups=[list(model.parameters())[:3]])), 1e-5)
        self.assertLess(self.train(lambda model: self.adamw(model, gradient_predivide_factor=2.0)), 1e-5)
        self.assertLess(self.train(lambda model: self.adamw(model, backward_passes_per_step=2), passes=2), 1e-5)
        self.assertLess(self.train(self.adamw, clip=0.01), 1e-4)
        self.assertLess(self.train(lambda model: self.adamw(model, compression=hvd.Compression.fp16)), 2e-2)

    def test_branches_that_some_ranks_do_not_take(self):
        model = torch.nn.ModuleList([torch.nn.Linear(2, 1, bias=False), torch.nn.Linear(2, 1, bias=False)])
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        before = model[1].weight.detach().clone()
        model[self.rank % 2](torch.ones(1, 2)).sum().backward()
        optimizer.step()
        odd = self.size // 2
        self.assertTrue(torch.allclose(model[1].weight, before - odd / self.size))

    def test_one_backward_too_many(self):
        model = net()
        optimizer = self.adamw(model)
        model(torch.ones(1, 6)).sum().backward()
        with self.assertRaisesRegex(AssertionError, "prohibited"):
            optimizer.zero_grad()
        with self.assertRaisesRegex(AssertionError, "backward_passes_per_step"):
            model(torch.ones(1, 6)).sum().backward()
        optimizer.step()

    def test_synchronize_and_step_warns(self):
        model = net()
        optimizer = self.adamw(model)
        model(torch.ones(1, 6)).sum().backward()
        optimizer.synchronize()
        with self.assertWarnsRegex(UserWarning, "skip_synchronize"):
            optimizer.step()

    def test_wrong_arguments(self):
        model = net()
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        weights = list(model.named_parameters())
        for text, options in (("must be unique", {"named_parameters": [("x", p) for _, p in weights]}),
                              ("were not named", {"named_parameters": weights[:2]}),
                              ("sequence of tuples", {"named_parameters": model.parameters()}),
                              ("gradient_predivide_factor", {"gradient_predivide_factor": 2.0, "op": hvd.Sum}),
                              ("only appear once", {"groups": [[weights[0][1]], [weights[0][1]]]}),
                              ("must be > 0", {"backward_passes_per_step": 0})):
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                hvd.DistributedOptimizer(sgd, **options)
        with self.assertRaisesRegex(ValueError, "LBFGS"):
            hvd.broadcast_optimizer_state(torch.optim.LBFGS(model.parameters()), root_rank=0)

    def test_schedulers_and_state(self):
        model = net()
        sgd = torch.optim.SGD(model.parameters(), lr=1.0 / (self.rank + 1), momentum=0.9)
        for p in model.parameters():
            p.grad = torch.full_like(p, float(self.rank + 1))
        sgd.step()
        optimizer = hvd.DistributedOptimizer(sgd, named_parameters=model.named_parameters())
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        self.assertIsInstance(optimizer, torch.optim.SGD)
        self.assertEqual(optimizer.param_groups[0]["lr"], 1.0)
        for state in optimizer.state.values():
            self.assertTrue((state["momentum_buffer"] == 1.0).all())
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        optimizer.zero_grad()
        model(torch.ones(1, 6)).sum().backward()
        optimizer.step()
        scheduler.step()
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.5)

    def test_adasum(self):
        model = torch.nn.Linear(4, 1, bias=False)
        torch.nn.init.zeros_(model.weight)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=model.named_parameters(),
                                             op=hvd.Adasum)
        x = torch.zeros(1, 4)
        x[0, self.rank % 4] = self.rank + 1.0
        model(x).sum().backward()
        if self.size == 3:
            with self.assertRaisesRegex(ValueError, "a power of two of ranks"):
                optimizer.step()
            return
        optimizer.step()
        wanted = torch.zeros(1, 4)
        wanted[0, :self.size] = -(torch.arange(self.size) + 1.0)
        self.equal(model.weight.detach(), wanted)

    def test_sparse_embeddings(self):
        for dense in (False, True):
            model = torch.nn.Embedding(5, 2, sparse=True)
            torch.nn.init.zeros_(model.weight)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=model.named_parameters(),
                                                 sparse_as_dense=dense)
            model(torch.tensor([self.rank])).sum().backward()
            optimizer.step()
            wanted = torch.zeros(5, 2)
            wanted[:self.size] = -1.0 / self.size
            self.assertTrue(torch.allclose(model.weight, wanted))

    def test_sync_batch_norm(self):
        torch.manual_seed(3)
        rows = [2 * r + 1 for r in range(self.size)]
        x = torch.randn(sum(rows), 4, 3, dtype=torch.float64) * 3 + 5
        weights = torch.randn(x.shape, dtype=torch.float64)
        whole, mine = torch.nn.BatchNorm1d(4).double(), hvd.SyncBatchNorm(4).double()
        whole_x = x.clone().requires_grad_()
        (whole(whole_x) * weights).sum().backward()
        part = slice(sum(rows[:self.rank]), sum(rows[:self.rank + 1]))
        my_x = x[part].clone().requires_grad_()
        (mine(my_x) * weights[part]).sum().backward()
        self.assertTrue(torch.allclose(my_x.grad, whole_x.grad[part]))
        self.assertTrue(torch.allclose(hvd.allreduce(mine.weight.grad, op=hvd.Sum), whole.weight.grad))
        self.assertTrue(torch.allclose(hvd.allreduce(mine.bias.grad, op=hvd.Sum), whole.bias.grad))
        self.assertTrue(torch.allclose(mine.running_mean, whole.running_mean))
        self.assertTrue(torch.allclose(mine.running_var, whole.running_var))
