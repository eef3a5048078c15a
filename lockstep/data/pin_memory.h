// The option pin_memory of a loader: batches in page-locked memory, which a GPU copies by itself.
//
//   auto loader = make_data_loader(train, sampler, {.batch_size = 128, .pin_memory = true});
//   for (auto& batch : loader) net->forward(batch.data.to(device, /*non_blocking=*/true));
//   if (!loader.why_not_pinned().empty()) std::puts("not pinned");           // "" when batches are pinned
//
// The threads that make the batches pin them. Batch and at::Tensor can be pinned. So can a batch type of the
// program that has a member pin_memory():
//
//   struct MyBatch {
//     at::Tensor first, second;
//     MyBatch pin_memory() const { return {first.pin_memory(), second.pin_memory()}; }
//   };
//
// Without a CUDA device the option does nothing. Batches are then as without it, why_not_pinned() returns the
// reason, and one warning goes to the log sink (base/log.h), as in Python.
#pragma once

#include <concepts>
#include <string>

namespace lockstep {

template <typename T>
concept Pinnable = requires(const T& batch) {
  { batch.pin_memory() } -> std::convertible_to<T>;
};

// "" if this process can pin memory, else the reason in a few words.
std::string why_not_pinned();

// Called by make_data_loader when the option is set. Returns why_not_pinned() and logs it once per process.
// Throws InvalidArgument if batches of the data set are of a type that is not Pinnable.
std::string begin_to_pin(bool is_pinnable);

}  // namespace lockstep
