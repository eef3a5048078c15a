"""lockstep.torch as a backend of torch.distributed: each verb against a formula, and what is built on the verbs against Gloo.

    export PYTHONPATH=python LOCKSTEP_CORE_LIBRARY=build/library/liblockstep_core.so
    python tests/python/torch_test.py 1 2 3 4          # these numbers of ranks, one after the other
    lockstep run -n 2 python tests/python/torch_test.py
"""
import os
import sys
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import lockstep.torch  # noqa: F401
import torch_ranks
from torch_ranks import Ranks
from torch_training import DataParallel  # noqa: F401: tests

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64,
          torch.complex64]


def given(rank, dtype=torch.float32, shape=(3, 4)):
    """Small numbers, which every dtype has and which add up exactly."""
    count = torch.Size(shape).numel()
    return (rank + torch.arange(count) % 5).reshape(shape).to(dtype)


def each_dtype_and_way(test):
    def run(self):
        for dtype in DTYPES:
            for async_op in (False, True):
                with self.subTest(dtype=dtype, async_op=async_op):
                    test(self, dtype, {"async_op": async_op}, (lambda work: work.wait()) if async_op else (lambda _: None))
    run.__name__ = test.__name__
    return run


class Verbs(Ranks):
    @each_dtype_and_way
    def test_reductions(self, dtype, way, end):
        every = [given(r, dtype) for r in range(self.size)]
        total = sum(every[1:], every[0].clone())
        x = every[self.rank].clone()
        end(dist.all_reduce(x, **way))
        self.equal(x, total)
        x = every[self.rank].clone()
        end(dist.reduce(x, self.root, **way))
        self.equal(x, total if self.rank == self.root else every[self.rank])
        whole = torch.cat([every[self.rank] + r for r in range(self.size)])
        part = torch.empty(3, 4, dtype=dtype)
        end(dist.reduce_scatter_tensor(part, whole, **way))
        self.equal(part, total + self.size * self.rank)
        end(dist.reduce_scatter(part, list(whole.chunk(self.size)), **way))
        self.equal(part, total + self.size * self.rank)

    @each_dtype_and_way
    def test_copies(self, dtype, way, end):
        every = [given(r, dtype) for r in range(self.size)]
        x = every[self.rank].clone()
        end(dist.broadcast(x, self.root, **way))
        self.equal(x, every[self.root])
        x, whole = every[self.rank].clone(), torch.empty(3 * self.size, 4, dtype=dtype)
        end(dist.all_gather_into_tensor(whole, x, **way))
        self.equal(whole, torch.cat(every))
        gathered = [torch.empty_like(x) for _ in range(self.size)]
        end(dist.all_gather(gathered, x, **way))
        self.equal(gathered, every)
        gathered = [torch.empty_like(x) for _ in range(self.size)] if self.rank == self.root else None
        end(dist.gather(x, gathered, self.root, **way))
        if gathered:
            self.equal(gathered, every)
        x = torch.empty_like(x)
        end(dist.scatter(x, every if self.rank == self.root else None, self.root, **way))
        self.equal(x, every[self.rank])
        sent = torch.cat([every[self.rank] + r for r in range(self.size)])
        received = torch.empty_like(sent)
        end(dist.all_to_all_single(received, sent, **way))
        self.equal(received, torch.cat([one + self.rank for one in every]))
        received = [torch.empty(3, 4, dtype=dtype) for _ in range(self.size)]
        end(dist.all_to_all(received, list(sent.chunk(self.size)), **way))
        self.equal(received, [one + self.rank for one in every])

    def test_all_to_all_of_uneven_parts(self):
        counts = list(range(self.size))  # rank q gets q rows from each rank
        received = torch.empty(self.rank * self.size, 2)
        dist.all_to_all_single(received, torch.full((sum(counts), 2), float(self.rank)), [self.rank] * self.size, counts)
        self.equal(received, torch.arange(float(self.size)).repeat_interleave(self.rank)[:, None].expand(-1, 2))

    def test_messages(self):
        if self.size == 1:
            return
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        x, y = torch.empty(3, 4), torch.empty(3, 4)
        sends = [dist.isend(given(self.rank), right, tag=1), dist.isend(given(self.rank) + 1, right, tag=2)]
        receives = [dist.irecv(y, left, tag=2), dist.irecv(x, left, tag=1)]
        for work in receives + sends:
            work.wait()
        self.equal([x, y], [given(left), given(left) + 1])
        if self.rank == 0:
            self.assertEqual(sorted(dist.recv(x, tag=3) for _ in range(self.size - 1)), list(range(1, self.size)))
        else:
            dist.send(x, 0, tag=3)  # its own tag: the next message to rank 0 must not be taken for it
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, given(self.rank), right), dist.P2POp(dist.irecv, x, left)]):
            work.wait()
        self.equal(x, given(left))

    def test_objects(self):
        everyone = [None] * self.size
        dist.all_gather_object(everyone, {"rank": self.rank})
        self.assertEqual(everyone, [{"rank": r} for r in range(self.size)])
        some = ["x" if self.rank == self.root else None]
        dist.broadcast_object_list(some, self.root)
        self.assertEqual(some, ["x"])

    def test_tensors_of_any_layout(self):
        x = given(self.rank).t()
        dist.all_reduce(x)
        self.equal(x, sum(given(r) for r in range(self.size)).t())
        image = torch.full((2, 3, 4, 4), float(self.rank)).to(memory_format=torch.channels_last)
        work = dist.all_reduce(image, async_op=True)
        work.wait()
        self.assertTrue((image == self.size * (self.size - 1) / 2).all())
        dist.all_reduce(torch.empty(0))
        scalar = torch.tensor(float(self.rank))
        dist.all_reduce(scalar, dist.ReduceOp.MAX)
        self.assertEqual(scalar.item(), self.size - 1)

    def test_operators(self):
        def of(value, op, dtype=torch.int32):
            x = torch.tensor([value], dtype=dtype)
            dist.all_reduce(x, op)
            return x.item()
        self.assertEqual(of(2, dist.ReduceOp.PRODUCT), 2 ** self.size)
        self.assertEqual(of(self.rank, dist.ReduceOp.MIN), 0)
        self.assertEqual(of(self.rank, dist.ReduceOp.MAX), self.size - 1)
        self.assertEqual(of(1 << self.rank, dist.ReduceOp.BOR), (1 << self.size) - 1)
        self.assertEqual(of(3, dist.ReduceOp.BAND), 3)
        self.assertEqual(of(1, dist.ReduceOp.BXOR), self.size % 2)
        self.assertEqual(of(self.rank + 1, dist.ReduceOp.AVG, torch.float64), (self.size + 1) / 2)

    def test_sparse(self):
        x = torch.sparse_coo_tensor([[self.rank, self.rank + 1]], [1.0, 1.0], (self.size + 1,))
        dist.all_reduce(x)
        wanted = torch.full((self.size + 1,), 2.0)
        wanted[0] = wanted[-1] = 1
        self.equal(x.to_dense(), wanted)

    def test_coalesced(self):
        x, y = given(self.rank), given(self.rank, shape=(7,))
        with dist._coalescing_manager(async_ops=True) as coalesced:
            dist.all_reduce(x)
            dist.all_reduce(y)
        coalesced.wait()
        self.equal([x, y], [sum(given(r) for r in range(self.size)), sum(given(r, shape=(7,)) for r in range(self.size))])
        outputs = [torch.empty(self.size * 3, 4), torch.empty(self.size * 7)]
        with dist._coalescing_manager():
            dist.all_gather_into_tensor(outputs[0], given(self.rank))
            dist.all_gather_into_tensor(outputs[1], given(self.rank, shape=(7,)))
        self.equal(outputs[1], torch.cat([given(r, shape=(7,)) for r in range(self.size)]))
        with dist._coalescing_manager(device=torch.device("cpu")):
            dist.broadcast(x, 0)
            dist.broadcast(y, self.root)
        self.equal(x, sum(given(r) for r in range(self.size)))

    def test_functional_collectives_and_dtensor(self):
        x = functional.all_reduce(given(self.rank), "sum", dist.group.WORLD)
        self.equal(x + 0, sum(given(r) for r in range(self.size)))
        x = functional.all_gather_tensor(given(self.rank), 0, dist.group.WORLD)
        self.equal(x + 0, torch.cat([given(r) for r in range(self.size)]))
        mesh = init_device_mesh("cpu", (self.size,))
        whole = torch.arange(float(self.size * 6)).reshape(self.size * 2, 3)
        sharded = distribute_tensor(whole, mesh, [Shard(0)])
        self.equal(sharded.to_local(), whole.chunk(self.size)[self.rank])
        self.equal((sharded * 2).redistribute(mesh, [Replicate()]).to_local(), whole * 2)
        self.equal(sharded.sum().full_tensor(), whole.sum())


class Works(Ranks):
    def test_are_waited_for_in_any_order_and_may_be_dropped(self):
        tensors = [torch.full((1000,), float(n)) for n in range(20)]
        works = [dist.all_reduce(x, async_op=True) for x in tensors]
        for n in reversed(range(20)):
            works[n].wait()
            self.assertEqual(tensors[n][999].item(), n * self.size)
        for _ in range(100):
            dist.all_reduce(torch.ones(1000), async_op=True)
        dist.barrier()

    def test_have_futures_whose_callbacks_may_communicate(self):
        x, y = torch.ones(10), torch.ones(10)
        def again(future):
            nested = dist.all_reduce(future.value()[0], async_op=True).get_future()
            return nested.wait()[0]
        future = dist.all_reduce(x, async_op=True).get_future().then(again)
        self.equal(future.wait(), torch.full((10,), float(self.size) ** 2))
        work = dist.all_reduce(y, async_op=True)
        work.wait()
        self.equal(work.get_future().wait()[0], torch.full((10,), float(self.size)))

    def test_count_and_say_which_backend_they_are_of(self):
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        before = backend._get_sequence_number_for_group()
        dist.barrier()
        self.assertEqual(backend._get_sequence_number_for_group(), before + 1)
        self.assertEqual((dist.get_backend(), backend.name()), ("lockstep", "lockstep"))
        with torch.profiler.profile() as profile:
            dist.all_reduce(torch.ones(3))
        self.assertIn("lockstep:all_reduce", {event.name for event in profile.events()})


class Groups(Ranks):
    def test_of_some_ranks_are_made_by_their_members(self):
        if self.size < 3:
            return
        if self.rank in (0, 2):
            pair = dist.new_group([0, 2], use_local_synchronization=True)
            x = torch.tensor([float(self.rank)])
            dist.all_reduce(x, group=pair)
            self.assertEqual(x.item(), 2)
            dist.broadcast(x, src=2, group=pair)
            if self.rank == 0:
                self.assertEqual(dist.recv(x, group=pair), 2)
            else:
                dist.send(x, 0, group=pair)
            dist.destroy_process_group(pair)
        dist.barrier()
        triple = dist.new_group([2, 0, 1])
        self.assertEqual(dist.get_process_group_ranks(triple) if self.rank < 3 else [0, 1, 2], [0, 1, 2])
        if self.rank < 3:
            dist.all_reduce(torch.ones(1), group=triple)

    def test_are_made_and_destroyed_without_growth(self):
        def cycle():
            group = dist.new_group(range(self.size))
            dist.all_reduce(torch.ones(20000), group=group)
            dist.destroy_process_group(group)
        def held():
            with open("/proc/self/maps") as maps:
                return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), sum(1 for line in maps if "lockstep" in line)
        for _ in range(20):
            cycle()
        before = held()
        for _ in range(80):
            cycle()
        self.assertEqual(held(), before)

    def test_monitored_barrier(self):
        group = dist.new_group(range(self.size))  # dist.monitored_barrier() itself asks for the name "gloo"
        group.monitored_barrier()
        if self.size == 1:
            return
        if self.rank == 0:
            with self.assertRaisesRegex(RuntimeError, "Rank 1 failed to pass monitoredBarrier in 200 ms"):
                group.monitored_barrier(timedelta(milliseconds=200))
        elif self.rank > 1:
            with self.assertRaisesRegex(RuntimeError, f"Rank {self.rank} successfully reached monitoredBarrier, but received errors"):
                group.monitored_barrier(timedelta(seconds=20))
        dist.barrier()


class Mistakes(Ranks):
    def test_are_named(self):
        for text, act in (("one part per rank", lambda: dist.all_gather_into_tensor(torch.empty(1), torch.ones(3))),
                          ("no bor of float32", lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BOR)),
                          ("dtype Float8_e5m2 are not carried", lambda: dist.all_reduce(torch.ones(3, dtype=torch.float8_e5m2)))):
            with self.subTest(text), self.assertRaisesRegex(RuntimeError, text):
                act()
        dist.barrier()  # the group is usable

    def test_of_ranks_that_disagree_close_the_group(self):
        if self.size == 1:
            return
        group = dist.new_group(range(self.size))
        with self.assertRaisesRegex(dist.DistBackendError, r"all_reduce\(float32\[1\], sum\)"):
            dist.all_reduce(torch.zeros(1 if self.rank == 0 else 2), group=group)
        with self.assertRaises(dist.DistBackendError):
            dist.barrier(group=group)
        dist.barrier()


def main():
    # Training is tested with two ranks, where sums are Gloo's, and with three, where parts are uneven.
    some = [] if dist.get_world_size() in (2, 3) else ["Verbs", "Works", "Groups", "Mistakes"]
    outcome = unittest.main(exit=False, argv=[sys.argv[0], *some]).result
    dist.destroy_process_group()
    if not outcome.wasSuccessful():
        sys.exit(1)


def one_rank(rank, size, folder):
    torch.set_num_threads(1)
    dist.init_process_group("lockstep", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    main()


if __name__ == "__main__":
    if "RANK" in os.environ:
        torch.set_num_threads(1)
        dist.init_process_group("lockstep")
        main()
    else:
        sizes = [int(word) for word in sys.argv[1:]] or [1, 2, 3, 4]
        sys.argv = sys.argv[:1]
        failed = {size: codes for size in sizes if any(codes := torch_ranks.run(size, one_rank))}
        if failed:
            sys.exit(f"exit codes of the ranks by number of ranks: {failed}")
