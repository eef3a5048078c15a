// Batches in page-locked memory, from which a GPU copies by itself: what the option pin_memory of a loader
// does.
//
//   auto loader = make_data_loader(train, sampler, {.batch_size = 128, .pin_memory = true});
//   for (auto& batch : loader) net->forward(batch.data.to(device, /*non_blocking=*/true));
//   if (!loader.why_not_pinned().empty()) std::puts("not pinned");           // "" when batches are pinned
//
// The threads that make the batches pin them. Batch and at::Tensor can be pinned, and so can a batch type of
// your own that has
//
//   struct MyBatch {
//     at::Tensor first, second;
//     MyBatch pin_memory() const { return {first.pin_memory(), second.pin_memory()}; }
//   };
//
// Without a CUDA device the option does nothing: batches are as without it, why_not_pinned() says why, and
// one warning goes to the log sink (base/log.h), as in Python.
#pragma once

#include <concepts>
#include <string>

namespace lockstep {

template <typename T>
concept Pinnable = requires(const T& batch) {
  { batch.pin_memory() } -> std::convertible_to<T>;
};

// "" when this process can pin memory, else the reason in a few words.
std::string why_not_pinned();

// Called by make_data_loader when the option is set: returns why_not_pinned() and warns of it, once per
// process. Throws InvalidArgument when batches of the data set are of a type that is not Pinnable.
std::string begin_to_pin(bool is_pinnable);

}  // namespace lockstep
