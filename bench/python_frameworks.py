"""Collectives through TensorFlow and JAX beside NumPy's, for bench/run.py."""
import os
import pathlib
import statistics

from competition import Competition, launch, objects, ratio

PEERS = pathlib.Path(__file__).resolve().parent / "peers"
SIZES = {4: "4 B", 1 << 20: "1 MiB", 16 << 20: "16 MiB"}


def python_frameworks(args):
    """Microseconds of all_reduce, two ranks, one thread each, one call behind the other: of NumPy, which is the core's own call on private
    memory; by lockstep.tensorflow and lockstep.horovod.tensorflow, eager and in a tf.function, beside a tf.function that adds 1; by
    lockstep.jax in jit. Below, milliseconds of a training step of JAX (five layers of 512 x 512, batch 64) whose gradients are reduced
    outside of jit by NumPy, and inside; and of TensorFlow's first trace of a step (20 layers) without a job's calls and with them. The
    Python is that of .deps/venv_tensorflow."""
    root = PEERS.parent.parent
    os.environ["PYTHONPATH"] = str(root / "python")
    os.environ["LOCKSTEP_CORE_LIBRARY"] = str(args.build / "library/liblockstep_core.so")
    python = os.environ.get("LOCKSTEP_TENSORFLOW_PYTHON") or root / ".deps/venv_tensorflow/bin/python"
    runs = Competition({"lockstep": launch(args) + [python, PEERS / "frameworks.py"]},
                       lambda output, _: {o.pop("of"): o for o in objects(output)}, args)
    values = runs.values["lockstep"]
    rows = {name: {way: round(statistics.median(run[key][way] for run in values), 2) for way in values[0][key]}
            for key, name in [*((size, f"all_reduce {text}, us") for size, text in SIZES.items()), ("step", "JAX step, ms"),
                              ("trace", "TensorFlow's first trace, ms")]}
    large, step = rows["all_reduce 1 MiB, us"], rows["JAX step, ms"]
    return runs.report() | {"unit": "us, ms", "medians": rows, "ratios": {
        **{f"all_reduce 1 MiB: {way} / numpy": ratio(large[way] / large["numpy"], at_most=3 if way == "tensorflow" else None)
           for way in large if way != "numpy"},
        "all_reduce 1 MiB: tensorflow, tf.function / tf.function alone":
            ratio(large["tensorflow, tf.function"] / large["tf.function alone"], at_most=3),
        "JAX step: jit / numpy": ratio(step["jax, jit"] / step["numpy"], at_most=1.5)}}
