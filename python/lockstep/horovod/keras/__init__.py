"""lockstep.horovod.tensorflow.keras under Horovod's other name: with Keras 3, keras and tf.keras are the same package."""
from ..tensorflow.keras import *  # noqa: F403
from ..tensorflow.keras import __all__  # noqa: F401
from ..tensorflow.keras import __getattr__  # noqa: F401
