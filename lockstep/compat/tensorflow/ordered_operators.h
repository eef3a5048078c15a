// Operators for the verbs of a group: ranks match them by the order of their calls. Each is stateful, so a
// tf.function runs them in the order in which the program wrote them.
//
//   LockstepAllReduce(tensors: N of T) -> N of T          one call for all of them
//   LockstepAllGather(tensor) -> [size, ...]              LockstepReduceScatter([size, ...]) -> [...]
//   LockstepBroadcast(tensor) -> the root's               LockstepAllToAll([size, ...]) -> [size, ...]
//
// Attributes  group: a handle of the C interface. op, root: as there.
// Blocks      the thread of TensorFlow that runs the operator.
#pragma once

namespace lockstep::compat::tensorflow {

// Throws Failure.
void register_ordered_operators();

}  // namespace lockstep::compat::tensorflow
