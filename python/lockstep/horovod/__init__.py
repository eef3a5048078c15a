"""Horovod's interface over Lockstep. `import lockstep.horovod.torch as hvd` takes the place of `import horovod.torch as hvd`."""
