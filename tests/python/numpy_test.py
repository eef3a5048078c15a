"""One rank of a job in Python: every verb of the package `lockstep` on every dtype, against formulas.

    PYTHONPATH=python LOCKSTEP_CORE_LIBRARY=build/library/liblockstep_core.so lockstep run -n 3 python tests/python/numpy_test.py
"""
import gc
import sys
import unittest

import numpy as np

import lockstep

DTYPES = ["float64", "float32", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool", "complex64",
          "complex128"]


def setUpModule():
    lockstep.init()


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rank, cls.size = lockstep.rank(), lockstep.size()

    def given(self, rank, dtype, count=7):
        """Small numbers, which every dtype has and which add up exactly; of bool, whether they are odd."""
        return self.cast(rank + np.arange(count) % 5, dtype)

    @staticmethod
    def cast(numbers, dtype):
        return (numbers % 2).astype(bool) if dtype == "bool" else numbers.astype(dtype)

    def sum_of(self, parts, dtype):
        return np.logical_or.reduce(parts) if dtype == "bool" else np.sum(parts, axis=0).astype(dtype)

    def equal(self, actual, wanted):
        self.assertEqual(actual.dtype, wanted.dtype)
        np.testing.assert_array_equal(actual, wanted)


def each_dtype_and_way(test):
    def run(self):
        for dtype in DTYPES:
            for async_op in (False, True):
                with self.subTest(dtype=dtype, async_op=async_op):
                    test(self, dtype, (lambda work: work.wait()) if async_op else (lambda result: result), async_op)
    run.__name__ = test.__name__
    return run


class Verbs(Ranks):
    @each_dtype_and_way
    def test_reductions(self, dtype, end, async_op):
        every = [self.given(r, dtype) for r in range(self.size)]
        mine, root = every[self.rank].copy(), self.size - 1
        self.assertIs(end(lockstep.all_reduce(mine, async_op=async_op)), mine)
        self.equal(mine, self.sum_of(every, dtype))
        mine = every[self.rank].copy()
        end(lockstep.reduce(mine, root, async_op=async_op))
        self.equal(mine, self.sum_of(every, dtype) if self.rank == root else every[self.rank])
        pair = [every[self.rank].copy(), every[self.rank][:2].copy()]
        end(lockstep.all_reduce_coalesced(pair, async_op=async_op))
        self.equal(pair[1], self.sum_of(every, dtype)[:2])

    @each_dtype_and_way
    def test_broadcast_and_gathers(self, dtype, end, async_op):
        every = [self.given(r, dtype) for r in range(self.size)]
        mine, root = every[self.rank].copy(), self.size - 1
        end(lockstep.broadcast(mine, root, async_op=async_op))
        self.equal(mine, every[root])
        self.equal(end(lockstep.all_gather(every[self.rank], async_op=async_op)), np.stack(every))
        counts = [2 * r % 5 for r in range(self.size)]
        rows = [every[r][:counts[r]] for r in range(self.size)]
        self.equal(end(lockstep.all_gatherv(rows[self.rank], counts, async_op=async_op)), np.concatenate(rows))
        gathered = end(lockstep.gather(every[self.rank], root, async_op=async_op))
        uneven = end(lockstep.gatherv(rows[self.rank], root, counts if self.rank == root else None, async_op=async_op))
        if self.rank == root:
            self.equal(gathered, np.stack(every))
            self.equal(uneven, np.concatenate(rows))
        else:
            self.assertIsNone(gathered)
            self.assertIsNone(uneven)
        part = np.empty(7, dtype)
        end(lockstep.scatter(part, root, np.stack(every) if self.rank == root else None, async_op=async_op))
        self.equal(part, every[self.rank])
        part = np.empty(counts[self.rank], dtype)
        end(lockstep.scatterv(part, root, *((np.concatenate(rows), counts) if self.rank == root else ()), async_op=async_op))
        self.equal(part, rows[self.rank])

    # Rank r has for rank q the numbers r + 2 * q + column.
    @each_dtype_and_way
    def test_what_passes_between_all(self, dtype, end, async_op):
        def held(rank, length=3):
            return self.cast(rank + 2 * np.arange(self.size)[:, None] + np.arange(length), dtype)
        every = [held(r) for r in range(self.size)]
        self.equal(end(lockstep.all_to_all(every[self.rank], async_op=async_op)), np.stack([one[self.rank] for one in every]))
        self.equal(end(lockstep.reduce_scatter(every[self.rank], async_op=async_op)),
                   self.sum_of([one[self.rank] for one in every], dtype))
        flat, counts = [one.reshape(-1) for one in every], [3] * self.size
        self.equal(end(lockstep.reduce_scatterv(flat[self.rank], counts, async_op=async_op)),
                   self.sum_of([one[self.rank] for one in every], dtype))
        to = list(range(self.size))  # rank q gets q numbers from each rank
        sent = self.cast(np.full(sum(to), self.rank + 1), dtype)
        received = end(lockstep.all_to_allv(sent, to, [self.rank] * self.size, async_op=async_op))
        self.equal(received, self.cast(np.repeat(np.arange(self.size) + 1, self.rank), dtype))

    @each_dtype_and_way
    def test_messages(self, dtype, end, async_op):
        if self.size == 1:
            return
        theirs = np.empty(7, dtype)
        before = (self.rank - 1) % self.size
        sent = lockstep.send(self.given(self.rank, dtype), (self.rank + 1) % self.size, 3, async_op=True)
        got = lockstep.recv(theirs, before, 3, async_op=async_op)
        if async_op:
            self.assertIs(got.wait(), theirs)
            got = got.source
        self.assertEqual(got, before)
        sent.wait()
        self.equal(theirs, self.given(before, dtype))

    def test_operators(self):
        def of(value, op, dtype=np.int32):
            return lockstep.all_reduce(np.full((2, 2), value, dtype, order="F"), op)[1, 1]
        self.assertEqual(of(self.rank + 1, "sum"), self.size * (self.size + 1) // 2)
        self.assertEqual(of(2, "product"), 2 ** self.size)
        self.assertEqual(of(self.rank, "min"), 0)
        self.assertEqual(of(self.rank, "max"), self.size - 1)
        self.assertEqual(of(1 << self.rank, "bor"), (1 << self.size) - 1)
        self.assertEqual(of(3, "band"), 3)
        self.assertEqual(of(1, "bxor"), self.size % 2)
        self.assertEqual(of(self.rank + 1, "avg", np.float64), (self.size + 1) / 2)


class Works(Ranks):
    def test_are_waited_for_in_any_order_and_may_be_dropped(self):
        works = [lockstep.all_reduce(np.full(1000, n, np.float32), async_op=True) for n in range(20)]
        for n, work in reversed(list(enumerate(works))):
            self.assertEqual(work.wait()[999], n * self.size)
            self.assertTrue(work.is_completed())
        for _ in range(200):
            lockstep.all_reduce(np.ones(1000, np.float32), async_op=True)
        gc.collect()
        lockstep.barrier()
        work = lockstep.barrier(async_op=True)
        while not work.is_completed():
            pass
        lockstep.monitored_barrier(timeout=600)

    def test_shared_memory(self):
        for _ in range(3):
            x = lockstep.shared_empty((100, 1000), np.float32)
            self.assertEqual((x.shape, x.dtype, x.sum()), ((100, 1000), np.float32, 0))
            x[:] = self.rank
            lockstep.all_reduce(x)
            self.assertTrue((x == self.size * (self.size - 1) / 2).all())
            part = x[10:20]
            del x
            gc.collect()
            self.assertEqual(lockstep.all_reduce(part)[0, 0], self.size * self.size * (self.size - 1) / 2)


class Groups(Ranks):
    def test_of_some_ranks(self):
        with lockstep.new_group([0], name="first") as group:
            self.assertEqual((group.rank, group.size, group.ranks), (0 if self.rank == 0 else -1, 1, [0]))
            self.assertEqual(group.name, "first" if self.rank == 0 else "none")
            lockstep.all_reduce(np.ones(3), group=group)
        half = lockstep.split_group(color=self.rank % 2, key=-self.rank)
        self.assertEqual(lockstep.all_gather(np.array([self.rank]), group=half)[:, 0].tolist(), half.ranks)
        self.assertEqual(half.ranks, sorted(range(self.rank % 2, self.size, 2), reverse=True))
        half.free()

    def test_places(self):
        self.assertEqual((lockstep.local_rank(), lockstep.local_size(), lockstep.node_rank(), lockstep.node_count()),
                         (self.rank, self.size, 0, 1))

    def test_objects(self):
        every, root = [b"\0" * r + b"x" for r in range(self.size)], self.size - 1
        self.assertEqual(lockstep.all_gather_object(every[self.rank]), every)
        self.assertEqual(lockstep.gather_object(every[self.rank], root), every if self.rank == root else [])
        self.assertEqual(lockstep.broadcast_object(b"a\0b" if self.rank == root else None, root), b"a\0b")
        self.assertEqual(lockstep.scatter_object(every if self.rank == root else None, root), every[self.rank])
        if self.rank == 1:
            lockstep.send_object(b"", 0, 9)
        if self.rank == 0 and self.size > 1:
            self.assertEqual(lockstep.recv_object(tag=9), (b"", 1))


class Mistakes(Ranks):
    def test_are_named_before_anything_is_sent(self):
        x = np.zeros((4, 4), np.float32)
        for error, text, act in (
                (ValueError, "not contiguous", lambda: lockstep.all_reduce(x[:, 1])),
                (TypeError, "no collectives of dtype", lambda: lockstep.all_reduce(np.array(["a"]))),
                (TypeError, "no collectives of dtype", lambda: lockstep.all_reduce(x.astype(">f4"))),
                (TypeError, "numpy.ndarray is needed", lambda: lockstep.broadcast(memoryview(b"1"), 0)),
                (ValueError, "no operator 'mean'", lambda: lockstep.all_reduce(x, "mean")),
                (ValueError, "one count for each rank", lambda: lockstep.all_gatherv(x, [4] * (self.size + 1))),
                (ValueError, "out must be of shape", lambda: lockstep.all_gather(x, out=x)),
                (ValueError, "first axis must be the rank", lambda: lockstep.reduce_scatter(np.zeros((self.size + 1, 2)))),
                (lockstep.InvalidArgument, "no bor of float32", lambda: lockstep.all_reduce(x, "bor")),
                (lockstep.InvalidArgument, "is not a rank of the group", lambda: lockstep.broadcast(x, self.size)),
                (lockstep.InvalidArgument, "already initialised", lockstep.init)):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                act()
        x.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "read-only"):
            lockstep.all_reduce(x)
        lockstep.barrier()  # the group is usable

    def test_of_ranks_that_disagree_close_the_group(self):
        if self.size == 1:
            return
        group = lockstep.new_group(range(self.size))
        with self.assertRaisesRegex(lockstep.Mismatch, r"all_reduce\(float64\[1\], sum\)"):
            lockstep.all_reduce(np.zeros(1 if self.rank == 0 else 2), group=group)
        with self.assertRaises(lockstep.Mismatch):
            lockstep.barrier(group=group)
        group.free()
        lockstep.barrier()


if __name__ == "__main__":
    outcome = unittest.main(exit=False, argv=sys.argv[:1]).result
    if not outcome.wasSuccessful():
        sys.exit(1)
    lockstep.shutdown()
