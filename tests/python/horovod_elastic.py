"""hvd.elastic: ranks that die in the middle of an epoch, and starts that go on from the last commit. Their end is that of one process
that never died. Run by horovod_failures_test.py; a start is what `lockstep run --max-restarts` makes of a failure.
"""
import contextlib
import json
import os
import pathlib
import signal
import tempfile
import unittest
import warnings

import torch

import lockstep
import lockstep.horovod.torch as hvd
import torch_ranks

EPOCHS, BATCHES, IMAGES = 2, 4, 16


def join(rank, size, folder):
    torch.set_num_threads(1)
    lockstep.init(init_method=f"file://{folder}/store", rank=rank, world_size=size)
    hvd.init()


def made():
    torch.manual_seed(3)
    model = torch.nn.Linear(2, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def loss(model, images):
    return model(torch.tensor([[float(image), 1.0] for image in images]) / IMAGES).square().mean()


def trains(rank, size, folder, commits, start, dies):
    """dies: (epoch, batch, whether after its commit, rank), or None."""
    os.environ["LOCKSTEP_ELASTIC_DIR"] = commits
    join(rank, size, folder)
    model, optimizer = made()
    if start == 0 and rank == 1:  # rank 0's values count
        torch.nn.init.zeros_(model.weight)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(range(IMAGES), shuffle=False)
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, batch=0, seen=[])
    resets = []
    state.register_reset_callbacks([lambda: resets.append(start)])

    def die_at(epoch, batch, after_commit):
        if dies == (epoch, batch, after_commit, rank):
            os.kill(os.getpid(), signal.SIGKILL)

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, EPOCHS):
            begin, images_a_rank = state.batch, IMAGES // BATCHES // size
            for batch in range(begin, BATCHES):
                images = sampler.get_indices(batch - begin, images_a_rank)
                optimizer.zero_grad()
                loss(model, images).backward()
                optimizer.step()
                sampler.record_batch(batch - begin, images_a_rank)
                state.seen = [*state.seen, (start, state.epoch, batch)]
                die_at(state.epoch, batch, False)
                state.batch = batch + 1
                if batch % 2 == 1:
                    state.commit()
                die_at(state.epoch, batch, True)
            state.batch = 0
            sampler.set_epoch(state.epoch + 1)

    train(state)
    outcome = {"seen": state.seen, "resets": resets, "weights": [p.tolist() for p in model.parameters()]}
    pathlib.Path(commits, f"{rank}.json").write_text(json.dumps(outcome))
    hvd.shutdown()


def of_one_process():
    """Each batch as two halves, whose mean is the mean of their gradients bit for bit, because halving is exact."""
    model, optimizer = made()
    for batch in [*range(BATCHES)] * EPOCHS:
        images = range(batch * IMAGES // BATCHES, (batch + 1) * IMAGES // BATCHES)
        halves = [torch.autograd.grad(loss(model, images[rank::2]), model.parameters()) for rank in (0, 1)]
        for p, one, other in zip(model.parameters(), *halves):
            p.grad = (one + other) / 2
        optimizer.step()
    return [p.tolist() for p in model.parameters()]


def deals(rank, size, folder, commits, done):
    """The rest of an epoch, of which `done` batches of two on each of two ranks are over."""
    os.environ["LOCKSTEP_ELASTIC_DIR"] = commits
    join(rank, size, folder)
    sampler = hvd.elastic.ElasticSampler(range(10), seed=1)
    state = hvd.elastic.ObjectState(where=0) if done is None else hvd.elastic.TorchState(sampler=sampler)

    @hvd.elastic.run
    def deal(state):
        share = -(-(10 - len(sampler.processed_indices)) // size)
        for batch in range(done or 0):
            sampler.record_batch(batch, 2)
            state.commit()
        dealt = hvd.allgather_object(list(sampler), name="dealt")
        assert all(len(part) == len(sampler) == share for part in dealt), dealt
        everything = set().union(*dealt) | sampler.processed_indices
        assert everything == set(range(10)), everything
        if done:
            raise InterruptedError  # before the end: the commit stays

    if done is None:
        state.where = 7 + rank
        state.save()
        state.where = 9
        state.restore()
        assert state.where == 7 + rank
        state.sync()
        assert state.where == 7
        del os.environ["LOCKSTEP_ELASTIC_DIR"]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            state.commit()
            state.commit()
        assert len(said) == (rank == 0), [str(one.message) for one in said]
    else:
        with contextlib.suppress(InterruptedError):
            deal(state)
    hvd.shutdown()


class Elastic(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.commits = self.folder.name

    def start(self, body, *arguments, size=2):
        return torch_ranks.run(size, body, self.commits, *arguments)

    def test_goes_on_from_the_last_commit(self):
        self.assertEqual(self.start(trains, 0, (0, 2, False, 1)), [1, -signal.SIGKILL])
        self.assertEqual(self.start(trains, 1, (1, 1, True, 0)), [-signal.SIGKILL, 1])
        self.assertEqual(self.start(trains, 2, None), [0, 0])
        for rank in (0, 1):
            found = json.loads(pathlib.Path(self.commits, f"{rank}.json").read_text())
            # Batch 2 of the first start was lost with rank 1, and done again.
            self.assertEqual(found["seen"], [[0, 0, 0], [0, 0, 1], [1, 0, 2], [1, 0, 3], [1, 1, 0], [1, 1, 1], [2, 1, 2], [2, 1, 3]])
            self.assertEqual(found["resets"], [2])
            self.assertEqual(found["weights"], of_one_process())
        self.assertEqual(sorted(os.listdir(self.commits)), ["0.json", "1.json"], "the commit of a run that is done is removed")

    def test_sampler_deals_the_rest_to_another_number_of_ranks(self):
        self.assertEqual(self.start(deals, 2), [0, 0])
        self.assertEqual(self.start(deals, 0, size=3), [0, 0, 0])
        self.assertEqual(os.listdir(self.commits), [])

    def test_objects_and_a_commit_without_a_folder(self):
        self.assertEqual(self.start(deals, None), [0, 0])
