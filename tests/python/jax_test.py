"""One rank of a job: lockstep.jax against formulas and one process, in jit and outside. Started by tensorflow_ranks.py."""
import jax
import jax.numpy as jnp
import numpy as np
from tensorflow_ranks import Ranks, Regression

import lockstep
import lockstep.jax as lj

DTYPES = [jnp.float32, jnp.float16, jnp.bfloat16, jnp.int8, jnp.uint8, jnp.int16, jnp.uint16, jnp.int32, jnp.uint32, jnp.complex64]


def both(function, *arguments):
    yield function(*arguments)
    yield jax.jit(function)(*arguments)


class Verbs(Ranks):
    def test_all_reduce(self):
        for dtype in DTYPES:
            mine = (jnp.arange(5) * (self.rank + 1)).astype(dtype)
            self.equal(np.asarray(lj.all_reduce(mine)).astype(np.complex64), np.arange(5) * self.total)
            self.equal(np.asarray(mine).astype(np.complex64), np.arange(5) * (self.rank + 1))
        for op, wanted in (("avg", self.total / self.size), ("min", 1), ("max", self.size)):
            for made in both(lambda x, op=op: lj.all_reduce(x, op), jnp.float32(self.rank + 1)):
                self.equal(made, np.float32(wanted))
        with self.assertRaisesRegex(ValueError, "there is no operator 'mean'"):
            lj.all_reduce(mine, "mean")

    def test_trees_of_several_dtypes(self):
        tree = {"a": jnp.ones((2, 3)), "b": [jnp.int32(self.rank), jnp.full(4, 2.0)], "c": jnp.ones(2, jnp.int32)}
        for made in both(lj.all_reduce, tree):
            self.equal(made["a"], np.full((2, 3), self.size))
            self.equal(made["b"][0], self.total - self.size)
            self.equal(made["b"][1], np.full(4, 2.0 * self.size))
            self.equal(made["c"], np.full(2, self.size))

    def test_inputs_stay_what_they_are(self):
        for doubled, made in both(lambda x: (2 * x, lj.all_reduce(2 * x)), jnp.full((3,), self.rank + 1.0)):
            self.equal(doubled, np.full(3, 2.0 * (self.rank + 1)))
            self.equal(made, np.full(3, 2.0 * self.total))

    def test_gathering_and_scattering(self):
        ranks = np.arange(self.size, dtype=np.int32)
        for made in both(lj.all_gather, jnp.full((2, 3), self.rank)):
            self.equal(made, np.broadcast_to(ranks[:, None, None], (self.size, 2, 3)))
        sent = jnp.asarray(10 * ranks + self.rank)[:, None] + jnp.zeros((1, 2), jnp.int32)
        for made in both(lj.all_to_all, sent):
            self.equal(made, (10 * self.rank + ranks)[:, None] + np.zeros((self.size, 2)))
        for made in both(lj.reduce_scatter, sent):
            self.equal(made, np.full(2, 10 * self.rank * self.size + self.total - self.size))
        for made in both(lambda x: lj.broadcast(x, self.size - 1), {"a": jnp.float32(self.rank), "b": jnp.full(2, self.rank)}):
            self.equal(made["a"], np.float32(self.size - 1))
            self.equal(made["b"], np.full(2, self.size - 1))
        with self.assertRaisesRegex(ValueError, f"first axis must be the rank, {self.size} long"):
            lj.reduce_scatter(jnp.ones(9))

    def test_order_by_after(self):
        @jax.jit
        def function(x):
            made, last = [], None
            for n in range(20):
                last = lj.all_reduce(jnp.full(n + 1, x), after=last)
                made.append(last)
            return made
        for _ in range(5):
            for n, made in enumerate(function(1.0)):
                self.equal(made, np.full(n + 1, self.size))

    def test_mismatches_reach_every_rank(self):
        if self.size == 1:
            return
        with lockstep.new_group(range(self.size), name="odd") as group:
            with self.assertRaisesRegex(jax.errors.JaxRuntimeError, "FAILED_PRECONDITION.*disagree"):
                jax.block_until_ready(lj.all_reduce(jnp.ones(4 if self.rank else 3), group=group))
        self.equal(lj.all_reduce(1), self.size)


class Gradients(Ranks):
    def test_are_those_of_the_sum_of_all_losses(self):
        x, places = jnp.ones((self.size, 2)), (np.arange(self.size) + 1.0)[:, None] * np.ones((self.size, 2))
        ones = np.ones((self.size, 2))
        for function, wanted in (
                (lj.all_reduce, ones * self.total), (lambda x: lj.all_reduce(x, "avg"), ones * self.total / self.size),
                (lj.all_gather, ones * self.total),
                (lambda x: lj.broadcast(x, self.size - 1), ones * (self.total if self.rank == self.size - 1 else 0)),
                (lj.reduce_scatter, places), (lambda x: lj.reduce_scatter(x, "avg"), places / self.size), (lj.all_to_all, places)):
            for made in both(jax.grad(lambda x, function=function: (function(x) * (self.rank + 1)).sum()), x):
                np.testing.assert_allclose(made, wanted, rtol=1e-6)
        with self.assertRaisesRegex(ValueError, "sum and avg, not for max"):
            jax.grad(lambda x: lj.all_reduce(x, "max").sum())(x)


class Training(Ranks):
    def test_equals_one_process(self):
        task = Regression(self.rank, self.size)

        def loss_of(parameters, x, y):
            hidden = jnp.tanh(x @ parameters[0] + parameters[1])
            return ((hidden @ parameters[2] + parameters[3] - y) ** 2).mean()

        @jax.jit
        def step(parameters, x, y):
            loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
            gradients = lj.all_reduce(gradients, "avg")
            loss = lj.all_reduce(loss, "avg", after=gradients)
            return [p - task.lr * g for p, g in zip(parameters, gradients)], loss
        parameters = [jnp.asarray(value) for value in task.start]
        for x, y in zip(task.x, task.y):
            parameters, _ = step(parameters, x[task.part], y[task.part])
        self.the_same_on_all_ranks(parameters)
        self.near(parameters, task.alone())
