// Operators that ranks match by name (lockstep/c/named.h). TensorFlow runs them in any order, and none keeps
// one of its threads: the engine's thread ends them.
//
//   LockstepNamedAllreduce(tensors: list) -> list             one name, or a group that runs together or not
//   at all LockstepNamedAllgather(tensors: list) -> list             LockstepNamedReducescatter(tensors:
//   list) -> list LockstepNamedBroadcast(tensors: one) -> the root's        LockstepNamedAlltoall(tensor,
//   splits) -> tensor, received
//
// Attributes  names: one a line, none for operations that are numbered. process_set, op, root: as in named.h.
//             prescale, postscale: numbers as text, because an attribute's number has 32 bits. is_awaited: a
//             thread of the program waits for it, so it does not wait for the cycle time.
// Stateless   for TensorFlow, so that it does not order them: a result that nobody uses is not made.
#pragma once

namespace lockstep::compat::tensorflow {

// Throws Failure.
void register_named_operators();

}  // namespace lockstep::compat::tensorflow
