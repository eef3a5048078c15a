// What a ShardedDataParallel can be told, and what of it reaches the step.
//
//   dist::ShardedDataParallel model(net, {.stage = 3, .max_live_parameters = 50'000'000});
//
// The four numbers of stage 3 are elements of parameters, with the names and the meaning that they have in
// DeepSpeed's configuration. They say nothing about bits: any of them gives the same ones. All ranks set the
// same.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <limits>
#include <optional>
#include <string>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/zero/sharded_step.h"

namespace lockstep {

struct ShardedDataParallelOptions {
  // Of ZeRO: 2 shares out the gradients, too, and 3 the parameters, too, where ranks have no memory in
  // common.
  int stage = 1;
  std::optional<double> bucket_cap_mb =
      {};                         // MiB that stages 2 and 3 average at once; default 25, the first 1
  bool broadcast_buffers = true;  // rank 0's buffers to all at each forward in training mode
  std::optional<ProcessGroup> process_group = {};  // default: world()
  // 16-bit parameters are stepped in float32, of which each rank keeps its part, and then rounded. Without it
  // they are stepped in 16 bits, where small changes round away.
  bool master_weights = false;
  std::optional<OffloadOptions> offload = {};  // default: everything is in memory
  // Where the model goes as it is wrapped, unit by unit in stage 3, so that a GPU never has all of it.
  // Default: it stays where it is. {torch::kCUDA}: this rank's GPU.
  std::optional<at::Device> device = {};

  // Stage 3 gathers parameters of so many MiB together; a larger one is alone. Default 4.
  std::optional<double> unit_mb = {};
  // Parameters of at most so many elements stay whole on each rank: to gather a bias takes the time of a
  // message, and to keep it costs little. 0: none.
  std::size_t param_persistence_threshold = 100'000;
  // No more than so many elements stay in this way, of all parameters together.
  std::size_t model_persistence_threshold = std::numeric_limits<std::size_t>::max();
  // So many elements are gathered at a time, those on their way included; what one operator reads is there
  // even if it is more. More is fewer gathers: what forward leaves, backward finds. Default: three units.
  std::optional<std::size_t> max_live_parameters = {};
  // Of them so many are on their way before they are read, but always one unit. Default: one unit. 0: none.
  std::optional<std::size_t> prefetch_bucket_size = {};
};

namespace zero {

// Throws InvalidArgument.
void check(const ShardedDataParallelOptions& options, const ProcessGroup& group);
// Where a model goes whose trained parameters are on `device`. Throws InvalidArgument.
at::Device device_for(const ShardedDataParallelOptions& options, const at::Device& device,
                      const ProcessGroup& group);
ShardedForm form_of(const ShardedDataParallelOptions& options);
// What every rank must have set alike, as text.
std::string settings_of(const ShardedDataParallelOptions& options);

}  // namespace zero
}  // namespace lockstep
