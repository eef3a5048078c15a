"""One rank of a job: lockstep.tensorflow against formulas, eager and in a tf.function. Started by tensorflow_ranks.py."""
import numpy as np
import tensorflow as tf
from tensorflow_ranks import Ranks, Regression

import lockstep
import lockstep.tensorflow as lt

DTYPES = [tf.float64, tf.float32, tf.float16, tf.bfloat16, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.uint32, tf.int64, tf.uint64,
          tf.complex64, tf.complex128]


def both(function, *arguments):
    """The results of a function, eager and as a graph."""
    yield function(*arguments)
    yield tf.function(function)(*arguments)


class Verbs(Ranks):
    def test_all_reduce_of_every_dtype(self):
        wanted = [(np.arange(5) * self.total, dtype) for dtype in DTYPES]
        for (sum_, dtype) in wanted:
            mine = tf.cast(tf.range(5) * (self.rank + 1), dtype)
            self.equal(tf.cast(lt.all_reduce(mine), tf.complex128), sum_)
            self.equal(tf.cast(mine, tf.complex128), np.arange(5) * (self.rank + 1))

    def test_all_reduce_by_every_operator(self):
        mine = tf.constant([self.rank + 1.0, -2.0])
        for op, first in (("sum", self.total), ("avg", self.total / self.size), ("min", 1), ("max", self.size),
                          ("product", np.prod(np.arange(self.size) + 1.0))):
            second = {"sum": -2 * self.size, "product": (-2.0) ** self.size}.get(op, -2)
            for made in both(lambda x, op=op: lt.all_reduce(x, op), mine):
                self.equal(made, np.float32([first, second]))
        self.equal(lt.all_reduce(tf.constant([self.rank == 0, True]), "band"), [self.size == 1, True])
        with self.assertRaisesRegex(ValueError, "there is no operator 'mean'"):
            lt.all_reduce(mine, "mean")

    def test_are_traced_as_they_are_written(self):
        variable = tf.Variable([1.0])

        def traced(x):
            lt.broadcast_variables([variable])
            lt.all_reduce_gradients([x, None])
            lt.all_reduce_coalesced([x, x])
            return lt.all_reduce(x), lt.broadcast(x, 0), lt.all_gather(x), lt.reduce_scatter(x), lt.all_to_all(x)
        self.assertEqual(self.rewritten(traced, tf.ones([self.size, 2])), {"tf__traced"})

    def test_inputs_stay_what_they_are(self):
        def function(x):
            doubled = 2 * x
            return doubled, lt.all_reduce(doubled)
        for doubled, made in both(function, tf.fill([3, 2], float(self.rank + 1))):
            self.equal(doubled, np.full((3, 2), 2.0 * (self.rank + 1)))
            self.equal(made, np.full((3, 2), 2.0 * self.total))

    def test_coalesced_of_several_dtypes(self):
        def function():
            return lt.all_reduce_coalesced([tf.ones([3]), tf.constant(2), tf.fill([2, 2], self.rank + 1.0), tf.constant(1, tf.int64)])
        for a, b, c, d in both(function):
            self.equal(a, np.full(3, self.size))
            self.equal(b, 2 * self.size)
            self.equal(c, np.full((2, 2), self.total))
            self.equal(d, self.size)

    def test_gathering_and_scattering(self):
        ranks = np.arange(self.size)
        for made in both(lambda x: lt.all_gather(x), tf.fill([2, 3], self.rank)):
            self.equal(made, np.broadcast_to(ranks[:, None, None], (self.size, 2, 3)))
        sent = tf.constant(10 * ranks + self.rank)[:, None] + tf.zeros([self.size, 2], tf.int64)
        for made in both(lambda x: lt.all_to_all(x), sent):
            self.equal(made, (10 * self.rank + ranks)[:, None] + np.zeros((self.size, 2)))
        for made in both(lambda x: lt.reduce_scatter(x), sent):
            self.equal(made, np.full(2, 10 * self.rank * self.size + self.total - self.size))
        for root in range(self.size):
            for made in both(lambda x, root=root: lt.broadcast(x, root), tf.constant([self.rank, 7])):
                self.equal(made, [root, 7])
        variable = tf.Variable([float(self.rank)])
        lt.broadcast_variables([variable], self.size - 1)
        self.equal(variable, [self.size - 1.0])

    def test_shapes_are_known_before_the_operator_runs(self):
        @tf.function
        def function(x):
            self.assertEqual(lt.all_reduce(x).shape.as_list(), [self.size, None, 3])
            self.assertEqual(lt.all_gather(x).shape.as_list(), [self.size, self.size, None, 3])
            self.assertEqual(lt.reduce_scatter(x).shape.as_list(), [None, 3])
            return x
        function.get_concrete_function(tf.TensorSpec([self.size, None, 3]))

    def test_a_function_keeps_the_order_of_its_calls(self):
        @tf.function
        def function(x):
            return [lt.all_reduce(tf.fill([n + 1], x)) for n in range(30)]
        for _ in range(5):
            for n, made in enumerate(function(tf.constant(1.0))):
                self.equal(made, np.full(n + 1, self.size))

    def test_groups(self):
        with lockstep.new_group([0, self.size - 1] if self.size > 1 else [0]) as ends:
            if ends.rank >= 0:
                for made in both(lambda x: lt.all_reduce(x, group=ends), tf.constant(self.rank + 1)):
                    self.equal(made, 1 if self.size == 1 else self.size + 1)


class Gradients(Ranks):
    def gradient(self, function, x):
        """Of function(x)'s elements, weighted by rank + 1."""
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
            loss = tf.reduce_sum(y * (self.rank + 1))
        return tape.gradient(loss, x)

    def test_are_those_of_the_sum_of_all_losses(self):
        x = tf.ones([self.size, 2])
        ones = np.ones((self.size, 2))
        for function, wanted in (
                (lambda x: lt.all_reduce(x), ones * self.total), (lambda x: lt.all_reduce(x, "avg"), ones * self.total / self.size),
                (lambda x: lt.all_gather(x), ones * self.total),
                (lambda x: lt.broadcast(x, self.size - 1), ones * (self.total if self.rank == self.size - 1 else 0)),
                (lambda x: lt.reduce_scatter(x), ones * (np.arange(self.size) + 1)[:, None]),
                (lambda x: lt.reduce_scatter(x, "avg"), ones * (np.arange(self.size) + 1)[:, None] / self.size),
                (lambda x: lt.all_to_all(x), ones * (np.arange(self.size) + 1)[:, None])):
            for made in both(lambda x, function=function: self.gradient(function, x), x):
                np.testing.assert_allclose(made, wanted, rtol=1e-6)
        with self.assertRaisesRegex(LookupError, "sum and avg, not for max"):
            self.gradient(lambda x: lt.all_reduce(x, "max"), x)

    def test_of_tapes(self):
        x, unused = tf.Variable([[1.0], [2.0]]), tf.Variable(1.0)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(x, [1])) * (self.rank + 1)
        dense, none = lt.all_reduce_gradients(tape.gradient(loss, [x, unused]))
        self.assertIsNone(none)
        self.equal(dense, np.float32([[0], [self.total / self.size]]))


class Training(Ranks):
    def test_equals_one_process(self):
        task = Regression(self.rank, self.size)
        def reduce(tape, loss, variables):
            return lt.all_reduce_gradients(tape.gradient(loss, variables))
        graph = self.graph_equals_eager(task, reduce)
        self.the_same_on_all_ranks(graph)
        self.near(graph, task.alone())


class Mistakes(Ranks):
    def test_reach_every_rank(self):
        if self.size == 1:
            return
        with lockstep.new_group(range(self.size), name="odd") as group:
            with self.assertRaisesRegex(tf.errors.FailedPreconditionError, "odd.*|disagree"):
                lt.all_reduce(tf.ones([4 if self.rank else 3]), group=group)
            with self.assertRaises(tf.errors.FailedPreconditionError):  # the group is closed
                tf.function(lambda: lt.all_reduce(tf.ones([1]), group=group))()
        self.equal(lt.all_reduce(1), self.size)

    def test_of_the_caller(self):
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, f"first dimension must be the rank, {self.size} long, and is 9"):
            lt.reduce_scatter(tf.ones([9]))
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "string is not in the list"):
            lt.all_reduce(tf.constant("text"))
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "LockstepAllReduce"):
            tf.function(lt.all_reduce, jit_compile=True)(tf.ones([2]))
