"""A Horovod program on Lockstep: TensorFlow's ResNet-50 on CIFAR-10 with DistributedGradientTape. Its import line changed.

    lockstep horovodrun -np 2 python examples/python/horovod_tensorflow.py --data data/cifar10
    lockstep run -n 2 python examples/python/horovod_tensorflow.py --data data/cifar10

load_data() reads CIFAR-10's binary version (scripts/download cifar10), where tf.keras.datasets.cifar10.load_data() would download another
one. The options make it small. It trains on the CPU.
"""
import argparse
import gzip
import pathlib

import numpy as np
import tensorflow as tf

import lockstep.horovod.tensorflow as hvd  # was: import horovod.tensorflow as hvd


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data/cifar10", help="folder with CIFAR-10's binary files")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--images", type=int, default=None, help="train with only so many")
    parser.add_argument("--model", default="ResNet50", help="a name of tf.keras.applications")
    return parser.parse_args()


def load_data(folder, limit):
    """Images of shape (n, 32, 32, 3), and their classes."""
    rows = []
    for path in sorted(pathlib.Path(folder).glob("data_batch_*.bin*")):
        data = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
        rows.append(np.frombuffer(data, np.uint8).reshape(-1, 1 + 3 * 32 * 32))
    if not rows:
        raise SystemExit(f"{folder} has no data_batch_1.bin: get CIFAR-10's binary version (scripts/download cifar10)")
    rows = np.concatenate(rows)[:limit]
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, :1]


def train_tensorflow_horovod(args):
    hvd.init()
    gpus = tf.config.experimental.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if gpus:
        tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")

    x_train, y_train = load_data(args.data, args.images)
    x_train = x_train.astype("float32") / 255.0
    dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train))
    dataset = dataset.shard(num_shards=hvd.size(), index=hvd.rank())
    dataset = dataset.shuffle(10000).batch(args.batch_size).prefetch(tf.data.AUTOTUNE)

    model = getattr(tf.keras.applications, args.model)(include_top=True, weights=None, classes=10, input_shape=(32, 32, 3))
    optimizer = tf.keras.optimizers.SGD(learning_rate=0.1 * hvd.size(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, compression=hvd.Compression.fp16)
    loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def training_step(images, labels, first_batch):
        with tf.GradientTape() as tape:
            predictions = model(images, training=True)
            loss = loss_fn(labels, predictions)
        tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        if first_batch:  # every rank begins with rank 0's variables
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(optimizer.variables(), root_rank=0)
        return loss

    for epoch in range(args.epochs):
        epoch_loss = 0.0
        for batch_idx, (images, labels) in enumerate(dataset):
            loss = training_step(images, labels, batch_idx == 0 and epoch == 0)
            epoch_loss += loss.numpy()
        epoch_loss = hvd.allreduce(tf.constant(epoch_loss / len(dataset)), average=True).numpy()
        if hvd.rank() == 0:
            print(f"Epoch {epoch}, Loss: {epoch_loss:.4f}")
            if (epoch + 1) % 10 == 0:
                model.save(f"tf_horovod_model_epoch_{epoch + 1}.h5")


if __name__ == "__main__":
    train_tensorflow_horovod(parse())
