"""One rank of a job: Horovod's interface for TensorFlow, against formulas and one process. Started by tensorflow_ranks.py."""
import inspect
import os
import random

import numpy as np
import tensorflow as tf
from tensorflow_ranks import Ranks, Regression

import lockstep
import lockstep.horovod.tensorflow as hvd

DTYPES = [tf.uint8, tf.int8, tf.int16, tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32, tf.float64]


def both(function, *arguments):
    """The results of a function, eager and as a graph."""
    yield function(*arguments)
    yield tf.function(function)(*arguments)


class Places(Ranks):
    def test_of_one_machine(self):
        self.assertEqual((hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()),
                         (self.rank, self.size, self.rank, self.size, 0, 1))
        self.assertTrue(hvd.is_homogeneous() and hvd.is_initialized())
        self.assertFalse(hvd.mpi_enabled() or hvd.nccl_built())
        with self.assertRaisesRegex(AttributeError, "hvd.elastic has no counterpart"):
            hvd.elastic  # noqa: B018


class Tracing(Ranks):
    """AutoGraph rewrites what a tf.function calls. Ours need that in nothing, and it would be most of the time of tracing."""

    def test_leaves_the_verbs_as_they_are_written(self):
        variable = tf.Variable([1.0])

        def traced(x):
            hvd.broadcast_variables([variable], 0)
            hvd.grouped_allreduce([x, x])
            hvd.grouped_allgather([x])
            hvd.grouped_reducescatter([x])
            return hvd.allreduce(x), hvd.allgather(x), hvd.broadcast(x, 0), hvd.alltoall(x), hvd.reducescatter(x)
        self.assertEqual(self.rewritten(traced, tf.ones([self.size, 2])), {"tf__traced"})

    def test_leaves_every_function_as_it_is_written(self):
        marks = set(vars(tf.autograph.experimental.do_not_convert(lambda: None))) - {"__wrapped__"}
        self.assertTrue(marks)
        functions = [name for name in hvd.__all__ if inspect.isfunction(getattr(hvd, name))]
        self.assertTrue({"allreduce", "size", "DistributedGradientTape", "broadcast_variables"} <= set(functions))
        self.assertEqual([name for name in functions if not marks <= set(vars(getattr(hvd, name)))], [])

    def test_leaves_the_reduction_of_gradients_as_it_is_written(self):
        variable = tf.Variable([1.0])

        def traced():
            with tf.GradientTape() as tape:
                loss = variable * variable
            return hvd.DistributedGradientTape(tape).gradient(loss, [variable])
        self.assertEqual(self.rewritten(traced), {"tf__traced", "tf__gradient"} if self.size > 1 else set())


class Operations(Ranks):
    def test_allreduce(self):
        for dtype in DTYPES:
            mine = tf.cast(tf.range(5) * (self.rank + 1), dtype)
            for made in both(lambda x: hvd.allreduce(x, op=hvd.Sum), mine):
                self.equal(tf.cast(made, tf.float64), np.arange(5) * self.total)
            self.equal(tf.cast(mine, tf.float64), np.arange(5) * (self.rank + 1))
            average = np.arange(5) * self.total / self.size
            wanted = tf.cast(tf.constant(average), dtype) if dtype.is_floating else np.trunc(average)
            self.equal(tf.cast(hvd.allreduce(mine, average=True), tf.float64), tf.cast(wanted, tf.float64))
        x = tf.constant([self.rank + 1.0])
        for op, wanted in ((hvd.Min, 1), (hvd.Max, self.size), (hvd.Product, np.prod(np.arange(self.size) + 1.0))):
            self.equal(hvd.allreduce(x, op=op), np.float32([wanted]))
        self.equal(hvd.allreduce(tf.constant(1.5), name="scalar"), np.float32(1.5))
        self.equal(hvd.allreduce(1.5 * self.rank, average=False), np.float32(1.5 * (self.total - self.size)))

    def test_factors_and_compression(self):
        x = tf.fill([5], float(self.rank + 1))
        self.equal(hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), np.full(5, 2.0 * self.total))
        third = hvd.allreduce(tf.constant(3.0, tf.float64), op=hvd.Sum, postscale_factor=1 / 3)
        self.equal(third, np.float64(3.0 * self.size * (1 / 3)))
        self.equal(hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16), np.full(5, float(self.total)))
        self.assertEqual(hvd.allreduce(x, compression=hvd.Compression.fp16).dtype, tf.float32)

    def test_groups(self):
        def function():
            return hvd.grouped_allreduce([tf.ones([4, 3]), tf.fill([3], self.rank + 1)], op=hvd.Sum)
        for x, y in both(function):
            self.equal(x, np.full((4, 3), self.size))
            self.equal(y, np.full(3, self.total))
        for made in both(lambda: hvd.grouped_allgather([tf.fill([self.rank, 2], r) for r in (1, 2)], name="pair")):
            self.equal(made[1], np.full((self.size * (self.size - 1) // 2, 2), 2))
        rows = tf.ones([2 * self.size])
        self.equal(hvd.grouped_reducescatter([rows, 2 * rows], op=hvd.Sum)[1], np.full(2, 2.0 * self.size))

    def test_indexed_slices(self):
        x = tf.IndexedSlices(tf.ones([2, 3]) * (self.rank + 1), tf.constant([self.rank, self.size]), tf.constant([self.size + 1, 3]))
        wanted = np.concatenate([np.arange(self.size) + 1, [self.total]])[:, None] * np.ones(3)
        for op, factor in ((hvd.Sum, 1), (hvd.Average, 1 / self.size)):
            for made in both(lambda x, op=op: tf.convert_to_tensor(hvd.allreduce(x, op=op, name="sparse")), x):
                np.testing.assert_allclose(made, wanted * factor, rtol=1e-6)
        dense = hvd.grouped_allreduce([x, tf.ones([1])], op=hvd.Sum)
        self.equal(tf.convert_to_tensor(dense[0]), wanted)
        with self.assertRaisesRegex(ValueError, "Average and Sum alone"):
            hvd.allreduce(x, op=hvd.Max)

    def test_allgather(self):
        for dtype in DTYPES:
            parts = [np.full((2 * r % 5, 2), r + 1) for r in range(self.size)]
            for made in both(hvd.allgather, tf.constant(parts[self.rank], dtype)):
                self.equal(tf.cast(made, tf.int64), np.concatenate(parts))

    def test_broadcast(self):
        root = self.size - 1
        for made in both(lambda x: hvd.broadcast(x, root), tf.constant([self.rank, 7])):
            self.equal(made, [root, 7])
        variables = [tf.Variable([float(self.rank)]), tf.Variable(self.rank, dtype=tf.int64), tf.Variable(self.rank > 0)]
        hvd.broadcast_variables(variables, root_rank=root)
        self.equal(variables[0], np.float32([root]))
        self.equal(variables[1], root)
        self.equal(variables[2], root > 0)
        variables[0].assign([float(self.rank)])
        tf.function(lambda: hvd.broadcast_variables(variables, root_rank=0))()
        self.equal(variables[0], np.float32([0]))
        self.assertEqual(hvd.broadcast_variables([], root_rank=0), [])

    def test_alltoall(self):
        sent = tf.fill([sum(range(self.size)), 2], float(self.rank))
        for output, received in both(lambda x: hvd.alltoall(x, splits=tf.range(self.size)), sent):
            self.equal(output, np.repeat(np.arange(self.size), self.rank)[:, None] * np.ones(2))
            self.equal(received, np.full(self.size, self.rank))
        even = hvd.alltoall(tf.range(2 * self.size) + 10 * self.rank)
        self.equal(tf.reshape(even, [-1, 2])[:, 0], 2 * self.rank + 10 * np.arange(self.size))

    def test_reducescatter(self):
        rows = 2 * self.size + 1
        first = 0 if self.rank == 0 else 2 * self.rank + 1
        wanted = np.arange(first, first + (3 if self.rank == 0 else 2))
        for made in both(lambda x: hvd.reducescatter(x, op=hvd.Sum), tf.range(float(rows))):
            self.equal(made, wanted * self.size)
        self.equal(hvd.reducescatter(tf.range(float(rows))), wanted)
        self.equal(hvd.reducescatter(tf.range(float(rows)), op=hvd.Sum, prescale_factor=2.0), wanted * self.size * 2)

    def test_objects(self):
        self.assertEqual(hvd.broadcast_object({"a": [1, "b"]} if self.rank == 0 else None, 0), {"a": [1, "b"]})
        self.assertEqual(hvd.broadcast_object_fn(root_rank=self.size - 1)(self.rank), self.size - 1)
        self.assertEqual(hvd.allgather_object("x" * self.rank, name="words"), ["x" * r for r in range(self.size)])

    def test_any_order_in_a_graph(self):
        """Each rank writes its operations in an order of its own. They match by name."""
        order = random.Random(self.rank)
        for _ in range(int(os.environ.get("NAMED_TEST_ROUNDS", "1"))):
            numbers = list(range(100))
            order.shuffle(numbers)

            @tf.function
            def function(x, numbers=numbers):
                made = {n: hvd.allreduce(tf.fill([n % 37 + 1], x + n), name=f"any.{n}", op=hvd.Sum) for n in numbers}
                return [made[n] for n in range(100)]
            for n, made in enumerate(function(tf.constant(float(self.rank)))):
                self.equal(made, np.full(n % 37 + 1, self.total - self.size + self.size * n))

    def test_shapes_are_known_before_the_operation_runs(self):
        @tf.function
        def function(x):
            self.assertEqual(hvd.allreduce(x).shape.as_list(), [None, 3])
            self.assertEqual(hvd.allgather(x).shape.as_list(), [None, 3])
            self.assertEqual(hvd.alltoall(x).shape.as_list(), [None, 3])
            return x
        function.get_concrete_function(tf.TensorSpec([None, 3]))

    def test_names_do_not_depend_on_what_else_a_rank_has_traced(self):
        for _ in range(self.rank):
            tf.function(lambda x: tf.cond(x > 0, lambda: x + 1, lambda: x))(tf.constant(1.0))

        @tf.function
        def step(x):
            return hvd.allreduce(x, op=hvd.Sum) + tf.cond(x > 0, lambda: hvd.allreduce(2 * x, op=hvd.Sum), lambda: x)
        x = tf.constant(1.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = step(x)
        self.equal(y, np.float32(3 * self.size))
        self.equal(tape.gradient(y, x), np.float32(3 * self.size))

    def test_a_result_that_one_rank_uses(self):
        @tf.function
        def function(x):
            made = hvd.allreduce(x, op=hvd.Sum)
            return made if self.rank == 0 else x
        self.equal(function(tf.constant(1.0)), np.float32(self.size if self.rank == 0 else 1))

    def test_process_sets(self):
        if self.size == 1:
            return
        ends = hvd.add_process_set([0, self.size - 1] if self.size > 2 else [1])
        if ends.included():
            for made in both(lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=ends), tf.constant([self.rank + 1.0])):
                self.equal(made, np.float32([sum(r + 1.0 for r in ends.ranks)]))
            self.equal(hvd.allgather(tf.constant([self.rank]), process_set=ends), ends.ranks)
        else:
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "is not in process set"):
                hvd.allreduce(tf.ones(1), process_set=ends)
        hvd.barrier()
        self.assertTrue(hvd.remove_process_set(ends))

    def test_join(self):
        for first in range(self.size):
            if self.rank != first:
                self.equal(hvd.allreduce(tf.ones(3), name="x"), np.full(3, np.float32((self.size - 1) / self.size)))
            last = hvd.join()
            self.equal(hvd.allgather(tf.constant([last])), np.full(self.size, last))

    def test_graphs_of_tensorflow_1(self):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            variable = tf.compat.v1.Variable([float(self.rank)], name="v")
            optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0))
            step = optimizer.minimize(tf.reduce_sum(variable) * (self.rank + 1))
            start = hvd.broadcast_global_variables(self.size - 1)
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(start)
            session.run(step)
            self.equal(session.run(variable), np.float32([self.size - 1 - self.total / self.size]))


class Mistakes(Ranks):
    def test_reach_every_rank(self):
        if self.size == 1:
            return
        odd = self.rank == 1
        for text, act in (
                ("about shape", lambda: hvd.allreduce(tf.ones(3 if odd else 4), name="shape")),
                ("about dtype", lambda: hvd.allreduce(tf.ones(3, tf.int32 if odd else tf.float32), name="dtype")),
                ("about operator", lambda: hvd.allreduce(tf.ones(3), name="op", op=hvd.Sum if odd else hvd.Max)),
                ("about root", lambda: hvd.broadcast(tf.ones(3), root_rank=int(odd), name="root")),
                ("about group", lambda: hvd.grouped_allreduce([tf.ones(1)] * 2, name="group")
                 if not odd else hvd.allreduce(tf.ones(1), name="group.0"))):
            with self.subTest(text), self.assertRaisesRegex(tf.errors.FailedPreconditionError, text):
                act()
        with self.assertRaisesRegex(tf.errors.FailedPreconditionError, "about shape"):
            tf.function(lambda: hvd.allreduce(tf.ones(3 if odd else 4), name="shape"))()
        self.equal(hvd.allreduce(tf.ones(1), op=hvd.Sum), np.float32([self.size]))

    def test_of_one_rank(self):
        if self.rank == 0:
            for text, act in (("scalar has none", lambda: hvd.allgather(tf.constant(1.0))),
                              ("splits must have one number", lambda: hvd.alltoall(tf.ones(3), splits=[1] * (self.size + 1))),
                              ("is not one of rank", lambda: hvd.broadcast(tf.ones(1), root_rank=self.size)),
                              ("reducescatter has sum", lambda: hvd.reducescatter(tf.ones(self.size), op=hvd.Adasum))):
                with self.subTest(text), self.assertRaisesRegex(tf.errors.InvalidArgumentError, text):
                    act()
            for text, act in (("average", lambda: hvd.allreduce(tf.ones(1), average=True, op=hvd.Sum)),
                              ("splits must be integers", lambda: hvd.alltoall(tf.ones(3), splits=[1.0] * self.size)),
                              ("at least one", lambda: hvd.grouped_allreduce([])),
                              ("predivide", lambda: hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum, gradient_predivide_factor=2.0)),
                              ("inherit", lambda: hvd.DistributedOptimizer(object()))):
                with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                    act()
        hvd.barrier()


class Gradients(Ranks):
    def gradient(self, function, shape):
        x = tf.fill(shape, float(self.rank + 1))
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(function(x) * (self.rank + 1))
        return tape.gradient(loss, x)

    def test_are_horovods(self):
        mean = self.total / self.size
        for function, shape, wanted in (
                (lambda x: hvd.allreduce(x, op=hvd.Sum), [3], np.full(3, self.total)), (lambda x: hvd.allreduce(x), [3], np.full(3, mean)),
                (lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=2.0), [3], np.full(3, 2 * self.total)),
                (lambda x: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum)[1], [3], np.full(3, 2 * self.total)),
                (hvd.allgather, [self.rank + 1, 2], np.full((self.rank + 1, 2), mean)),
                (lambda x: hvd.broadcast(x, self.size - 1), [3], np.full(3, mean if self.rank == self.size - 1 else 0)),
                (lambda x: hvd.alltoall(x), [self.size], np.arange(self.size) + 1),
                (lambda x: hvd.alltoall(x, splits=[1] * self.size)[0], [self.size], np.arange(self.size) + 1),
                (hvd.reducescatter, [self.size], np.arange(self.size) + 1),
                (lambda x: hvd.reducescatter(x, op=hvd.Sum), [self.size], self.size * (np.arange(self.size) + 1))):
            for made in both(lambda function=function, shape=shape: self.gradient(function, shape)):
                np.testing.assert_allclose(made, wanted, rtol=1e-6)


class Tapes(Ranks):
    def reduce(self, **options):
        return lambda tape, loss, variables: hvd.DistributedGradientTape(tape, **options).gradient(loss, variables)

    def test_training_equals_one_process(self):
        task = Regression(self.rank, self.size)
        graph = self.graph_equals_eager(task, self.reduce())
        self.the_same_on_all_ranks(graph)
        alone = task.alone()
        self.near(graph, alone)
        for options in ({"num_groups": 2}, {"gradient_predivide_factor": 2.0}):
            self.near(task.train(self.reduce(**options), task.part), alone)
        self.near(task.train(self.reduce(compression=hvd.Compression.fp16), task.part), alone, 1e-2)

    def test_sparse_and_absent_gradients(self):
        table, unused = tf.Variable(tf.zeros([self.size + 1, 2])), tf.Variable(1.0)

        def gradients(**options):
            with hvd.DistributedGradientTape(tf.GradientTape(), **options) as tape:
                loss = tf.reduce_sum(tf.gather(table, [self.rank, self.size]))
            return tape.gradient(loss, {"table": table, "unused": unused})
        wanted = np.ones((self.size + 1, 2)) / self.size
        wanted[-1] = 1
        for options in ({}, {"sparse_as_dense": True}):
            for made in both(lambda options=options: tf.convert_to_tensor(gradients(**options)["table"])):
                np.testing.assert_allclose(made, wanted, rtol=1e-6)
        self.assertIsNone(gradients()["unused"])

    def test_groups_and_local_sources(self):
        variables = [tf.Variable(1.0) for _ in range(4)]
        with tf.GradientTape() as tape:
            loss = tf.add_n(variables) * (self.rank + 1)
        tape = hvd.DistributedGradientTape(tape, groups=[variables[:2]])
        tape.register_local_source(variables[3])
        mean = self.total / self.size
        made = [float(one) for one in tape.gradient(loss, variables)]
        np.testing.assert_allclose(made, [mean] * 3 + [(self.rank + 1) / (self.size if self.size > 1 else 1)], rtol=1e-6)

    def test_adasum_of_equal_gradients_is_their_average(self):
        if self.size & (self.size - 1):
            return
        variable = tf.Variable([1.0, 2.0])
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * variable)
        self.equal(hvd.DistributedGradientTape(tape, op=hvd.Adasum).gradient(loss, variable), np.float32([2, 4]))

    def test_ranks_may_give_different_lengths(self):
        """Traces of a function for other shapes have the same names."""
        variable = tf.Variable(2.0)

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(x) * variable
            return hvd.DistributedGradientTape(tape).gradient(loss, variable)
        for length in (3, 3 + self.rank, 4):
            self.equal(step(tf.ones([length])), np.float32(1))


class Normalisation(Ranks):
    def test_equals_that_of_all_batches_together(self):
        import keras

        rows = [2 + 3 * rank for rank in range(self.size)]
        numbers = np.random.default_rng(3)
        x = numbers.standard_normal((sum(rows), 4, 5)).astype(np.float32) * 3 + 1
        weights = numbers.standard_normal(x.shape).astype(np.float32)
        part = slice(sum(rows[:self.rank]), sum(rows[:self.rank + 1]))
        whole, mine = keras.layers.BatchNormalization(), hvd.SyncBatchNormalization()

        def run(layer, x, weights):
            x = tf.constant(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x, training=True)
                loss = tf.reduce_sum(y * weights)
            return y, tape.gradient(loss, [x, *layer.trainable_variables])
        y, (of_x, *of_weights) = run(whole, x, weights)
        my_y, (of_my_x, *of_my_weights) = run(mine, x[part], weights[part])
        np.testing.assert_allclose(my_y, y[part], atol=1e-5)
        np.testing.assert_allclose(of_my_x, of_x[part], atol=1e-5)
        for one, other in zip(of_my_weights, of_weights):
            np.testing.assert_allclose(hvd.allreduce(one, op=hvd.Sum), other, rtol=1e-4, atol=1e-4)
        self.near(mine.non_trainable_variables, whole.non_trainable_variables, 1e-5)


class Ends(Ranks):
    def test_zz_a_second_start(self):
        hvd.shutdown()
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "call init"):
            hvd.allreduce(tf.ones(1))
        hvd.init()
        self.equal(hvd.allreduce(tf.ones(1), op=hvd.Sum), np.float32([self.size]))
        self.assertEqual(lockstep.size(), self.size)
