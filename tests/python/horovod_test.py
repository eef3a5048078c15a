"""Horovod's interface for PyTorch, against formulas and torch in one process: jobs of forks, or one rank of a job that was launched.

    export PYTHONPATH=python LOCKSTEP_CORE_LIBRARY=build/library/liblockstep_core.so
    python tests/python/horovod_test.py shm_4 tcp_3
    lockstep run -n 3 python tests/python/horovod_test.py
"""
import json
import os
import random
import sys
import tempfile
import unittest

import torch
import torch_ranks
from horovod_optimizers import Optimizers, Ranks  # noqa: F401: unittest finds its tests here

import lockstep
import lockstep.horovod.torch as hvd

DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
SECONDS = 400  # the machine may be busy
ROUNDS = int(os.environ.get("NAMED_TEST_ROUNDS", "3"))  # of 200 tensors in random orders


def setUpModule():
    torch.set_num_threads(1)
    hvd.init()


class Values(Ranks):
    def given(self, rank, dtype, dims):
        """Numbers from -8 to 8, whose sums every dtype has; of uint8, from 0."""
        generator = torch.Generator().manual_seed(100 * dims + rank)
        values = torch.randint(0 if dtype == torch.uint8 else -8, 9, [17] * dims, generator=generator)
        return values.to(dtype)

    def each(self):
        for dtype in DTYPES:
            for dims in (1, 2) if dtype == torch.float32 else (1,):
                with self.subTest(dtype=dtype, dims=dims):
                    yield [self.given(r, dtype, dims) for r in range(self.size)], dtype


class Places(Ranks):
    def test_of_one_machine(self):
        self.assertEqual((hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()), (self.rank, self.size, 0, 1))
        self.assertTrue(hvd.is_homogeneous() and hvd.is_initialized())
        self.assertFalse(hvd.mpi_enabled() or hvd.nccl_built())


class Operations(Values):
    def test_allreduce(self):
        for every, dtype in self.each():
            total = torch.stack(every).sum(0, dtype=torch.float64)
            mine = every[self.rank].clone()
            self.equal(hvd.allreduce(mine, op=hvd.Sum), total.to(dtype))
            self.equal(mine, every[self.rank])
            average = hvd.allreduce(mine, average=True)
            wanted = total / self.size
            self.equal(average, (wanted if dtype.is_floating_point else wanted.trunc()).to(dtype))
            self.equal(hvd.allreduce(mine, op=hvd.Min), torch.stack(every).amin(0))
            self.assertIs(hvd.allreduce_(mine, op=hvd.Max), mine)
            self.equal(mine, torch.stack(every).amax(0))
        self.equal(hvd.allreduce(torch.tensor([2.0]), op=hvd.Product), torch.tensor([2.0 ** self.size]))
        self.equal(hvd.allreduce(torch.tensor(1.5), name="scalar"), torch.tensor(1.5))

    def test_factors_and_compression(self):
        x = torch.full((5,), float(self.rank + 1))
        total = self.size * (self.size + 1) / 2
        self.equal(hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), torch.full((5,), 2 * total))
        self.equal(hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16), torch.full((5,), total))
        whole = torch.full((5,), self.rank + 1)
        self.equal(hvd.allreduce(whole, op=hvd.Sum, compression=hvd.Compression.fp16), torch.full((5,), int(total)))

    def test_groups_and_not_contiguous_tensors(self):
        x, y = torch.ones(4, 6)[:, ::2], torch.full((3,), 2.0)
        made = hvd.grouped_allreduce([x, y], op=hvd.Sum, name="pair")
        self.equal(made[0], torch.full((4, 3), float(self.size)))
        self.equal(made[1], torch.full((3,), 2.0 * self.size))
        handle = hvd.grouped_allreduce_async_([x, y], op=hvd.Sum)
        self.assertIs(hvd.synchronize(handle)[0], x)
        self.equal(x, torch.full((4, 3), float(self.size)))
        self.assertTrue(hvd.poll(handle))
        self.assertIsNone(hvd.synchronize(handle))

    def test_allgather(self):
        for every, dtype in self.each():
            parts = [every[r][:2 * r % 5] for r in range(self.size)]
            self.equal(hvd.allgather(parts[self.rank]), torch.cat(parts))
        made = hvd.grouped_allgather([torch.full((self.rank, 2), r) for r in (1, 2)], name="pair")
        self.equal(made[1], torch.full((self.size * (self.size - 1) // 2, 2), 2))

    def test_broadcast(self):
        root = self.size - 1
        for every, dtype in self.each():
            mine = every[self.rank].clone()
            self.equal(hvd.broadcast(mine, root), every[root])
            self.equal(mine, every[self.rank])
            self.assertIs(hvd.broadcast_(mine, root, name="mine"), mine)
            self.equal(mine, every[root])

    def test_alltoall(self):
        sent = torch.full((sum(range(self.size)), 2), float(self.rank))
        output, received = hvd.alltoall(sent, splits=torch.arange(self.size))
        self.equal(output, torch.arange(self.size).repeat_interleave(self.rank).float().unsqueeze(1).expand(-1, 2))
        self.equal(received, torch.full((self.size,), self.rank, dtype=torch.int32))
        even = hvd.alltoall(torch.arange(2 * self.size) + 10 * self.rank)
        self.equal(even.view(-1, 2)[:, 0], 2 * self.rank + 10 * torch.arange(self.size))

    def test_reducescatter(self):
        rows = 2 * self.size + 1
        first = 0 if self.rank == 0 else 2 * self.rank + 1
        wanted = torch.arange(first, first + (3 if self.rank == 0 else 2)).float()
        self.equal(hvd.reducescatter(torch.arange(rows).float(), op=hvd.Sum), wanted * self.size)
        self.equal(hvd.reducescatter(torch.arange(rows).float()), wanted)
        self.equal(hvd.reducescatter(torch.arange(rows).float(), op=hvd.Sum, prescale_factor=2.0), wanted * self.size * 2)
        self.equal(hvd.grouped_reducescatter([torch.ones(rows)] * 2, name="pair", op=hvd.Sum)[1], torch.full(wanted.shape, float(self.size)))

    def test_objects(self):
        self.assertEqual(hvd.broadcast_object({"a": [1, "b"]} if self.rank == 0 else None, 0), {"a": [1, "b"]})
        self.assertEqual(hvd.allgather_object("x" * self.rank, name="words"), ["x" * r for r in range(self.size)])

    def test_sparse(self):
        x = torch.sparse_coo_tensor([[self.rank, self.size]], torch.ones(2, 3), (self.size + 1, 3))
        wanted = torch.ones(self.size + 1, 3)
        wanted[self.size] = self.size
        self.equal(hvd.synchronize(hvd.sparse_allreduce_async(x, "sparse", hvd.Sum)).to_dense(), wanted)
        self.equal(hvd.synchronize(hvd.sparse_allreduce_async(x, "sparse", hvd.Average)).to_dense(), wanted / self.size)

    def test_any_order_of_submissions(self):
        order = random.Random(self.rank)
        for _ in range(ROUNDS):
            numbers = list(range(200))
            order.shuffle(numbers)
            handles = {n: hvd.allreduce_async(torch.full((n % 37 + 1,), float(self.rank + n)), name=str(n), op=hvd.Sum) for n in numbers}
            for n, handle in handles.items():
                wanted = torch.full((n % 37 + 1,), float(self.size * (self.size - 1) // 2 + self.size * n))
                self.assertTrue(torch.equal(hvd.synchronize(handle), wanted), n)

    def test_process_sets(self):
        if self.size == 1:
            return
        ends = hvd.add_process_set([0, self.size - 1] if self.size > 2 else [1])
        if ends.included():
            self.equal(hvd.allreduce(torch.tensor([self.rank + 1.0]), op=hvd.Sum, process_set=ends),
                       torch.tensor([sum(r + 1.0 for r in ends.ranks)]))
            self.equal(hvd.broadcast(torch.tensor([self.rank]), self.size - 1, process_set=ends), torch.tensor([self.size - 1]))
            self.equal(hvd.allgather(torch.tensor([self.rank]), process_set=ends), torch.tensor(ends.ranks))
        else:
            with self.assertRaisesRegex(ValueError, "is not in process set"):
                hvd.allreduce(torch.ones(1), process_set=ends)
        hvd.barrier()
        with self.assertRaisesRegex(ValueError, "has these ranks already"):
            hvd.add_process_set(ends.ranks)
        self.assertTrue(hvd.remove_process_set(ends))
        with self.assertRaisesRegex(ValueError, "has not been added"):
            hvd.allreduce(torch.ones(1), process_set=ends)

    def test_join(self):
        for first in range(self.size):
            if self.rank != first:
                self.equal(hvd.allreduce(torch.ones(3), name="x"), torch.full((3,), (self.size - 1) / self.size))
            last = hvd.join()
            self.equal(hvd.allgather(torch.tensor([last])), torch.full((self.size,), last))
            if self.size > 1:
                self.assertNotEqual(last, first)

    def test_timeline(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "timeline.json")
            hvd.start_timeline(path, mark_cycles=True)
            hvd.allreduce(torch.ones(1), name="shown")
            hvd.barrier()
            hvd.stop_timeline()
            if self.rank == 0:
                with open(path, encoding="utf-8") as file:
                    names = {event.get("name") for event in json.load(file)}
                self.assertTrue({"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "CYCLE_START"} <= names, names)


class Mistakes(Ranks):
    def test_reach_every_rank(self):
        if self.size == 1:
            return
        odd = self.rank == 1
        for text, act in (
                ("about shape", lambda: hvd.allreduce(torch.ones(3 if odd else 4), name="shape")),
                ("about dtype", lambda: hvd.allreduce(torch.ones(3, dtype=torch.int32 if odd else torch.float32), name="dtype")),
                ("about operator", lambda: hvd.allreduce(torch.ones(3), name="op", op=hvd.Sum if odd else hvd.Max)),
                ("about root", lambda: hvd.broadcast(torch.ones(3), root_rank=int(odd), name="root")),
                ("beyond the first dimension", lambda: hvd.allgather(torch.ones(3, 1 + odd), name="rows")),
                ("about group", lambda: hvd.grouped_allreduce([torch.ones(1)] * 2, name="group")
                 if not odd else hvd.allreduce(torch.ones(1), name="group.0"))):
            with self.subTest(text), self.assertRaisesRegex(lockstep.Mismatch, text):
                act()
        self.equal(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(self.size)]))

    def test_of_one_rank(self):
        handle = hvd.allreduce_async(torch.ones(2), name="twice")
        if self.rank == 0:
            # The first may be done before the second is submitted: only while it is under way the name is taken.
            for text, act in (("scalar has none", lambda: hvd.allgather(torch.tensor(1.0))),
                              ("average", lambda: hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)),
                              ("on meta", lambda: hvd.allreduce(torch.ones(1, device="meta"))),
                              ("no operations on", lambda: hvd.allreduce(torch.ones(1).to(torch.float8_e5m2))),
                              ("sparse_allreduce", lambda: hvd.allreduce(torch.eye(2).to_sparse())),
                              ("splits must have one number", lambda: hvd.alltoall(torch.ones(3), splits=[1] * (self.size + 1))),
                              ("is not one of rank", lambda: hvd.broadcast(torch.ones(1), root_rank=self.size)),
                              ("reducescatter has sum", lambda: hvd.reducescatter(torch.ones(self.size), op=hvd.Adasum))):
                with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                    act()
        hvd.synchronize(handle)
        hvd.barrier()


class Gradients(Ranks):
    def gradient(self, function, shape):
        x = torch.full(shape, float(self.rank + 1), requires_grad=True)
        y = function(x)
        y.backward(torch.full(y.shape, float(self.rank + 1)))
        return x.grad

    def test_are_horovods(self):
        total = self.size * (self.size + 1) / 2
        self.equal(self.gradient(lambda x: hvd.allreduce(x, op=hvd.Sum), (3,)), torch.full((3,), total))
        self.equal(self.gradient(hvd.allreduce, (3,)), torch.full((3,), total / self.size))
        self.equal(self.gradient(lambda x: hvd.grouped_allreduce([x], op=hvd.Sum)[0], (3,)), torch.full((3,), total))
        self.equal(self.gradient(hvd.allgather, (self.rank + 1, 2)), torch.full((self.rank + 1, 2), total / self.size))
        self.equal(self.gradient(lambda x: hvd.broadcast(x, 0), (2,)), torch.full((2,), total / self.size if self.rank == 0 else 0.0))
        self.equal(self.gradient(hvd.alltoall, (self.size,)), torch.arange(self.size) + 1.0)
        parts = [2 if r == 0 else 1 for r in range(self.size)]
        wanted = torch.repeat_interleave(torch.arange(self.size) + 1.0, torch.tensor(parts))
        self.equal(self.gradient(lambda x: hvd.reducescatter(x, op=hvd.Sum), (self.size + 1,)), wanted * self.size)


class Starts(Ranks):
    def test_again_after_a_shutdown(self):
        hvd.shutdown()
        self.assertFalse(hvd.is_initialized())
        with self.assertRaisesRegex(ValueError, "has not been initialized"):
            hvd.rank()
        first = hvd.ProcessSet([0])
        hvd.init(process_sets=[first] if self.size > 1 else None)
        if self.size > 1:
            self.assertEqual((first.process_set_id, first.size(), first.included()), (1, 1, self.rank == 0))
        self.equal(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(self.size)]))

    def test_again_after_lockstep_has_left_the_job(self):
        for _ in range(2):  # a name that the ended engine knew
            self.equal(hvd.synchronize(hvd.allreduce_async(torch.ones(1), name="again", op=hvd.Sum)), torch.tensor([float(self.size)]))
            lockstep.shutdown()
            hvd.init()


def main():
    outcome = unittest.main(exit=False, argv=sys.argv).result
    if not outcome.wasSuccessful():
        sys.exit(1)
    hvd.shutdown()


def one_rank(rank, size, folder, backend):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size),
                      LOCKSTEP_JOB_ID=os.path.basename(folder), LOCKSTEP_BACKEND=backend)
    sys.argv = sys.argv[:1]
    main()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        jobs = [word.split("_") for word in sys.argv[1:]] or sys.exit(__doc__)
        failed = {(backend, size): codes for backend, size in jobs
                  if any(codes := torch_ranks.run(int(size), one_rank, backend, seconds=SECONDS))}
        if failed:
            sys.exit(f"exit codes of the ranks by backend and number of ranks: {failed}")
