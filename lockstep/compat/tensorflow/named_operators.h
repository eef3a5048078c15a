// Operators that ranks match by name (lockstep/c/named.h). TensorFlow runs them in any order, and none keeps
// one of its threads: the engine's thread ends them.
//
//   LockstepNamedAllreduce(tensors: list) -> list             several: they run together or not at all
//   LockstepNamedAllgather(tensors: list) -> list
//   LockstepNamedReducescatter(tensors: list) -> list
//   LockstepNamedBroadcast(tensors: list) -> the root's
//   LockstepNamedAlltoall(tensor, splits) -> tensor, received
//
// Attributes  names: one a line, none for operations that are numbered. process_set, op, root: as in named.h.
//             prescale, postscale: numbers as text, because an attribute's number has 32 bits. is_awaited: a
//             thread of the program waits for it, so it does not wait for the cycle time.
// Stateless   for TensorFlow, so that it does not order them. It leaves out a stateless operator whose result
//             nobody uses, and ranks may differ in that. So Python gives the results of each to the stateful
//             LockstepKeep(tensors: list), which does nothing.
#pragma once

namespace lockstep::compat::tensorflow {

// Throws Failure.
void register_named_operators();

}  // namespace lockstep::compat::tensorflow
