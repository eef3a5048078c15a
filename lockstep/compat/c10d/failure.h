// Errors of Lockstep as torch's programs expect them. A wrong argument stays as it is and reaches Python as
// RuntimeError, as from Gloo. A failure of the group becomes c10::DistBackendError, which Python has as
// torch.distributed.DistBackendError. The text is ours. Behind that of a timeout stand the words by which
// torch's own programs know one.
//
//   try {
//     all_reduce(tensor, op, group);
//   } catch (...) {
//     throw_as_torch(timeout);
//   }
#pragma once

#include <chrono>
#include <exception>
#include <string>

namespace lockstep::compat::torch_backend {

// `timeout` is how long the call could wait.
std::exception_ptr as_torch(const std::exception_ptr& error, std::chrono::milliseconds timeout);
// In a catch block.
[[noreturn]] void throw_as_torch(std::chrono::milliseconds timeout);
[[noreturn]] void throw_dist_backend_error(const std::string& text);

}  // namespace lockstep::compat::torch_backend
