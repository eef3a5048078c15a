"""One rank of a job: Horovod's interface for Keras 3, in fit() and in loops, against one process. Started by tensorflow_ranks.py."""
import os
import tempfile

import keras
import numpy as np
import tensorflow as tf
from tensorflow_ranks import Ranks, Regression

import lockstep.horovod.keras as hvd
import lockstep.horovod.tensorflow as hvd_tf


def model_of(task, optimizer, **options):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **options)
    model.set_weights(task.start)
    return model


def fit(task, model, part, **options):
    """20 steps in the order of the task."""
    x, y = (values[:, part].reshape(-1, values.shape[-1]) for values in (task.x, task.y))
    return model.fit(x, y, batch_size=len(x) // task.steps, shuffle=False, verbose=0, **options)


class Fit(Ranks):
    def alone(self, task, optimizer, **options):
        model = model_of(task, optimizer)
        fit(task, model, slice(None), **options)
        return model.get_weights()

    def test_equals_one_process(self):
        task = Regression(self.rank, self.size)
        alone = self.alone(task, keras.optimizers.SGD(0.1, momentum=0.9))
        for eager in (False, True):
            model = model_of(task, hvd.DistributedOptimizer(keras.optimizers.SGD(0.1, momentum=0.9)), run_eagerly=eager)
            fit(task, model, task.part)
            self.the_same_on_all_ranks(model.get_weights())
            self.near(model.get_weights(), alone)

    def test_callbacks(self):
        task = Regression(self.rank, self.size, steps=10)
        model = model_of(task, hvd.DistributedOptimizer(keras.optimizers.Adam(1.0)), metrics=["mae"])
        model.layers[0].bias.assign(np.full(16, self.rank))  # ranks begin differently
        rates = []
        seen = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: rates.append(float(model.optimizer.learning_rate)),
                                              on_epoch_end=lambda epoch, logs: averages.append(dict(logs)))
        averages = []
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(),
                     hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.01 * self.size, warmup_epochs=2),
                     hvd.callbacks.LearningRateScheduleCallback(initial_lr=0.01 * self.size, multiplier=lambda epoch: 0.5, start_epoch=2),
                     seen]
        history = fit(task, model, task.part, epochs=3, callbacks=callbacks)
        self.the_same_on_all_ranks(model.get_weights() + [np.asarray(one) for one in model.optimizer.variables])
        self.the_same_on_all_ranks([np.array([sorted(one.items()) for one in averages])])
        self.assertEqual(sorted(averages[0]), ["loss", "lr", "mae"])
        self.near(history.history["loss"], [one["loss"] for one in averages], 0)
        warm = [0.01 * (1 + (step + 1) / 10 * (self.size - 1) / 2) for step in range(20)]
        np.testing.assert_allclose(rates, warm + [0.005 * self.size] * 10, rtol=1e-5)

    def test_accumulates_passes(self):
        """Two passes over halves of a batch are one over the batch."""
        task = Regression(self.rank, self.size)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), backward_passes_per_step=2, average_aggregated_gradients=True)
        model = model_of(task, optimizer)
        x, y = task.x[:, task.part], task.y[:, task.part]
        rows = x.shape[1] // 2
        model.fit(x.reshape(-1, 6), y.reshape(-1, 1), batch_size=rows, shuffle=False, verbose=0)
        self.near(model.get_weights(), self.alone(task, keras.optimizers.SGD(0.1)))
        self.assertEqual(int(optimizer.iterations), task.steps)

    def test_loop_with_apply_gradients(self):
        """As in programs for Keras 2: optimizer.variables is called, and a tape and an optimizer may both reduce."""
        task = Regression(self.rank, self.size)
        model = model_of(task, "sgd")
        optimizer = hvd_tf.DistributedOptimizer(keras.optimizers.SGD(0.1))
        model.layers[0].bias.assign(np.full(16, self.rank))

        @tf.function
        def step(x, y, first_batch):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
            tape = hvd_tf.DistributedGradientTape(tape)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            if first_batch:
                hvd_tf.broadcast_variables(model.variables, root_rank=0)
                hvd_tf.broadcast_variables(optimizer.variables(), root_rank=0)
        for number, (x, y) in enumerate(zip(task.x, task.y)):
            step(x[task.part], y[task.part], number == 0)
        self.the_same_on_all_ranks(model.get_weights())

    def test_saves_and_loads(self):
        task = Regression(self.rank, self.size, steps=2)
        model = model_of(task, hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
        fit(task, model, task.part)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.keras")
            model.save(path)
            plain, loaded = keras.models.load_model(path), hvd.load_model(path)
        self.assertIs(type(plain.optimizer), keras.optimizers.Adam)
        self.near(plain.optimizer.variables, model.optimizer.variables, 0)
        for one in (model, loaded):
            fit(task, one, task.part)
        self.near(loaded.get_weights(), model.get_weights(), 0)
        self.the_same_on_all_ranks(loaded.get_weights())


class Values(Ranks):
    def test_are_arrays(self):
        self.equal(hvd.allreduce([self.rank + 1.0], op=hvd.Sum), np.float32([self.total]))
        self.equal(hvd.allreduce(np.float64(self.rank), average=True), (self.size - 1) / 2)
        self.equal(hvd.allgather([self.rank]), np.arange(self.size))
        self.equal(hvd.broadcast([self.rank], self.size - 1), [self.size - 1])
        self.equal(hvd.reducescatter(np.arange(self.size), op=hvd.Sum), [self.rank * self.size])
        self.assertEqual(hvd.broadcast_object(self.rank, 0), 0)
