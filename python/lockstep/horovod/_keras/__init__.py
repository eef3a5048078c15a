"""What lockstep.horovod.keras and lockstep.horovod.tensorflow.keras have in common: Keras 3 over TensorFlow."""
from __future__ import annotations

import keras

if keras.backend.backend() != "tensorflow":
    raise ImportError(f"lockstep.horovod works with Keras over TensorFlow, and this Keras is over {keras.backend.backend()}; set "
                      "KERAS_BACKEND=tensorflow")
