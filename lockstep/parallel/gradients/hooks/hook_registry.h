// Communication hooks by name: those of the library and those that a program adds.
//
//   const auto hook = dist::make_comm_hook("powerSGD");                   // with default options
//   dist::add_comm_hook("mine", [] { return my_hook(); });
//
//   allreduce      the plain average
//   fp16_compress  the average of float16 copies, in half or a quarter of the bytes; infinite above 65504
//   bf16_compress  the same with bfloat16: less exact, no overflow
//   powerSGD       low-rank factors of each matrix, error feedback, warm start (power_sgd_hook.h)
//   topk           the largest hundredth of the elements, error feedback (top_k_hook.h)
//   int8           8 bits per element and a scale per 512 (int8_hook.h)
//   noop           nothing is sent, so each rank keeps its own gradients and models drift apart. It shows the
//                  cost of communication
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/parallel/gradients/hooks/comm_hook.h"

namespace lockstep {

// Throws InvalidArgument for an unknown name, and lists all known names.
std::shared_ptr<CommHook> make_comm_hook(const std::string& name);

using CommHookMaker = std::function<std::shared_ptr<CommHook>()>;
// Throws InvalidArgument if the name is taken. Any thread.
void add_comm_hook(const std::string& name, CommHookMaker make);

std::vector<std::string> comm_hook_names();  // sorted

}  // namespace lockstep
