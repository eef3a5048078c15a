"""For tf.compat.v1.train.MonitoredTrainingSession."""
from __future__ import annotations

import tensorflow as tf

from .functions import broadcast_global_variables


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """When the session begins, every rank's variables become the root's."""

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.operation = None

    def begin(self) -> None:
        self.operation = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session, coord) -> None:
        session.run(self.operation)
