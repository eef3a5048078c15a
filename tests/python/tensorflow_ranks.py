"""Ranks for the tests with TensorFlow: forks of one process that has imported TensorFlow and Keras, because that takes longer than a test.

    PYTHONPATH=python LOCKSTEP_CORE_LIBRARY=build/library/liblockstep_core.so \\
        .deps/venv_tensorflow/bin/python tests/python/tensorflow_ranks.py 1 2 4
"""
import contextlib
import multiprocessing
import os
import sys
import tempfile
import traceback
import unittest
import unittest.mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import jax  # noqa: E402, F401: forks have it
import keras  # noqa: E402, F401
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import lockstep  # noqa: E402
import lockstep.horovod.tensorflow as hvd  # noqa: E402
from lockstep.tensorflow._operators import operators  # noqa: E402

SECONDS = 400  # the machine may be busy
MODULES = ["tensorflow_test", "horovod_tensorflow_test", "horovod_keras_test", "jax_test",
           "horovod_tensorflow_example_test"]
FOR_EVERY_SIZE = MODULES[:2]  # those of Keras and JAX trace and compile for longer than they run: with two ranks, or by TENSORFLOW_TESTS


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rank, cls.size = lockstep.rank(), lockstep.size()
        cls.total = cls.size * (cls.size + 1) // 2  # of rank + 1

    def equal(self, actual, wanted):
        np.testing.assert_array_equal(np.asarray(actual), np.asarray(wanted), strict=False)
        self.assertEqual(np.asarray(actual).shape, np.asarray(wanted).shape)

    def the_same_on_all_ranks(self, tensors):
        mine = [np.asarray(tensor).tobytes() for tensor in tensors]
        for other in hvd.allgather_object(mine):
            self.assertEqual(other, mine)

    def near(self, actual, wanted, difference=1e-6):
        for one, other in zip(actual, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=0, atol=difference)

    def rewritten(self, function, *arguments):
        """The names of what AutoGraph has rewritten between a tf.function and our operators. It puts "tf__" before them."""
        names = set()

        def watched(operator):
            def call(*arguments, **options):
                names.update(frame.name for frame in traceback.extract_stack() if "__autograph_generated" in frame.filename)
                return operator(*arguments, **options)
            return call
        with contextlib.ExitStack() as patches:
            for name in filter(lambda name: name.startswith("lockstep_"), dir(operators)):
                patches.enter_context(unittest.mock.patch.object(operators, name, watched(getattr(operators, name))))
            tf.function(function)(*arguments)
        return names

    def graph_equals_eager(self, task, reduce):
        """Bit for bit, where TensorFlow runs the graph as it was written. The variables after training by the graph as it is by default."""
        eager = task.train(reduce, task.part, eager=True)
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        written = task.train(reduce, task.part)
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
        self.near(written, eager, 0)
        return task.train(reduce, task.part)


class Regression:
    """A small network, and a batch of which each rank has its part: training in one process has a known result."""

    def __init__(self, rank, size, steps=20, lr=0.1):
        numbers = np.random.default_rng(1)
        self.steps, self.lr = steps, lr
        self.x = numbers.standard_normal((steps, 24, 6)).astype(np.float32)
        self.y = np.sin(self.x.sum(2, keepdims=True)).astype(np.float32)
        self.start = [numbers.standard_normal(shape).astype(np.float32) / 3 for shape in ((6, 16), (16,), (16, 1), (1,))]
        rows = 24 // size
        self.part = slice(rank * rows, (rank + 1) * rows)

    def variables(self):
        return [tf.Variable(value, name=f"v{number}") for number, value in enumerate(self.start)]

    @staticmethod
    def loss(variables, x, y):
        hidden = tf.tanh(x @ variables[0] + variables[1])
        return tf.reduce_mean(tf.square(hidden @ variables[2] + variables[3] - y))

    def train(self, reduce, part=None, eager=False):
        """The variables after all steps. reduce(tape, loss, variables) gives the gradients."""
        variables = self.variables()

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = self.loss(variables, x, y)
            for variable, gradient in zip(variables, reduce(tape, loss, variables)):
                variable.assign_sub(self.lr * gradient)
        run = step if eager else tf.function(step)
        for x, y in zip(self.x, self.y):
            run(tf.constant(x[part or slice(None)]), tf.constant(y[part or slice(None)]))
        return [variable.numpy() for variable in variables]

    def alone(self):
        return self.train(lambda tape, loss, variables: tape.gradient(loss, variables), eager=True)


def _rank(rank, size, folder):
    tempfile.tempdir = folder  # TensorFlow leaves a file for each function that it traces
    try:
        tf.get_logger().setLevel("ERROR")  # functions made in loops are traced again
        tf.config.threading.set_intra_op_parallelism_threads(1)
        lockstep.init(init_method=f"file://{folder}/store", rank=rank, world_size=size, timeout=600)
        hvd.init()
        modules = MODULES if size == 2 else FOR_EVERY_SIZE
        suite = unittest.defaultTestLoader.loadTestsFromNames(os.environ.get("TENSORFLOW_TESTS", "").split() or modules)
        result = unittest.TextTestRunner(failfast=True, verbosity=int(rank == 0)).run(suite)
        code = 0 if result.wasSuccessful() else 1
        if code == 0:
            hvd.shutdown()
            lockstep.shutdown()
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)  # TensorFlow's threads are not waited for


def main():
    fork, failed = multiprocessing.get_context("fork"), False
    for size in map(int, sys.argv[1:]):
        with tempfile.TemporaryDirectory(prefix="lockstep-tensorflow-") as folder:
            ranks = [fork.Process(target=_rank, args=(rank, size, folder)) for rank in range(size)]
            for rank in ranks:
                rank.start()
            for number, rank in enumerate(ranks):
                rank.join(SECONDS)
                if rank.exitcode is None:
                    rank.kill()
                    rank.join()
                if rank.exitcode != 0:
                    print(f"rank {number} of {size} ended with {rank.exitcode}", file=sys.stderr)
                    failed = True
    return int(failed)


if __name__ == "__main__":
    sys.modules["tensorflow_ranks"] = sys.modules["__main__"]
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.exit(main())
