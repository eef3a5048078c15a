"""One of two ranks: microseconds of collectives through the operators of TensorFlow and the calls of JAX, beside NumPy's, which is the
core's own call on private memory; milliseconds of a training step of JAX, and of TensorFlow's first trace of one. Prints one line of JSON
for each, with its key under "of". For bench/run.py.

    lockstep run -n 2 python bench/peers/frameworks.py
"""
import json
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import lockstep  # noqa: E402
import lockstep.horovod.tensorflow as hvd  # noqa: E402
import lockstep.jax as lj  # noqa: E402
import lockstep.tensorflow as lt  # noqa: E402

SIZES = (4, 1 << 20, 16 << 20)


def median_of(call, seconds=0.4):
    """Seconds of one call. All ranks make equally many."""
    for _ in range(5):
        call()
    begin = time.perf_counter()
    call()
    count = int(lockstep.all_reduce(np.array([max(10.0, min(2000.0, seconds / (time.perf_counter() - begin)))]), "min")[0])
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def collectives(size):
    array = np.ones(size // 4, np.float32)
    tensor, x = tf.constant(array), jnp.asarray(array)
    in_graph, named_in_graph, alone = tf.function(lt.all_reduce), tf.function(hvd.allreduce), tf.function(lambda x: x + 1)
    in_jit = jax.jit(lj.all_reduce)
    return {"numpy": lambda: lockstep.all_reduce(array), "tensorflow": lambda: lt.all_reduce(tensor),
            "tf.function alone": lambda: alone(tensor), "tensorflow, tf.function": lambda: in_graph(tensor),
            "horovod.tensorflow": lambda: hvd.allreduce(tensor),
            "horovod.tensorflow, tf.function": lambda: named_in_graph(tensor), "jax, jit": lambda: in_jit(x).block_until_ready()}


def steps():
    """Five layers of 512 x 512, batch 64: gradients reduced inside of jit, or outside by NumPy."""
    numbers = np.random.default_rng(lockstep.rank())
    parameters = [jnp.asarray(np.random.default_rng(n).standard_normal((512, 512)).astype(np.float32) / 30) for n in range(5)]
    x, y = (jnp.asarray(numbers.standard_normal((64, 512)).astype(np.float32)) for _ in range(2))

    def loss_of(parameters, x, y):
        for one in parameters:
            x = jnp.tanh(x @ one)
        return ((x - y) ** 2).mean()

    def apply(parameters, gradients):
        return [p - 0.1 * g for p, g in zip(parameters, gradients)]
    gradients_of, update = jax.jit(jax.grad(loss_of)), jax.jit(apply)

    def numpy_step():
        gradients = [np.array(one) for one in gradients_of(parameters, x, y)]
        lockstep.all_reduce_coalesced(gradients, "avg")
        jax.block_until_ready(update(parameters, gradients))

    @jax.jit
    def whole(parameters, x, y):
        return apply(parameters, lj.all_reduce(jax.grad(loss_of)(parameters, x, y), "avg"))
    return {"numpy": numpy_step, "jax, jit": lambda: jax.block_until_ready(whole(parameters, x, y))}


def traces():
    """Milliseconds in which a process traces a tf.function of a step for the first time: 20 layers of 32 x 32, without a job's calls and
    with them. Expected: their operators are 20 of about 200, so they take a tenth of the time, unless AutoGraph rewrites what makes them."""
    layers = [tf.Variable(tf.ones([32, 32]) / 32) for _ in range(20)]

    def alone():
        with tf.GradientTape() as tape:
            loss = loss_of(tf.ones([8, 32]))
        return tape.gradient(loss, layers), loss

    def by_order():
        gradients, loss = alone()
        return lt.all_reduce_gradients(gradients), lt.all_reduce(loss, "avg")

    def by_name():
        with tf.GradientTape() as tape:
            loss = loss_of(tf.ones([8, 32]))
        return hvd.DistributedGradientTape(tape).gradient(loss, layers), hvd.allreduce(loss)

    def loss_of(x):
        for layer in layers:
            x = tf.tanh(x @ layer)
        return tf.reduce_mean(x)

    times = {}
    for name, step in {"tf.function alone": alone, "tensorflow, tf.function": by_order, "horovod.tensorflow, tf.function": by_name}.items():
        begin = time.perf_counter()
        tf.function(step).get_concrete_function()
        times[name] = (time.perf_counter() - begin) * 1e3
    return times


def main():
    tf.config.threading.set_intra_op_parallelism_threads(1)
    lockstep.init()
    hvd.init()
    lines = [{"of": "trace"} | traces()]  # before anything else is traced
    lines += [{"of": size} | {name: median_of(call) * 1e6 for name, call in collectives(size).items()} for size in SIZES]
    lines.append({"of": "step"} | {name: median_of(call, 2.0) * 1e3 for name, call in steps().items()})
    if lockstep.rank() == 0:
        for line in lines:
            print(json.dumps(line))


if __name__ == "__main__":
    main()
