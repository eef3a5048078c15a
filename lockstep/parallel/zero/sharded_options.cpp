#include "lockstep/parallel/zero/sharded_options.h"

#include "lockstep/base/str.h"
#include "lockstep/parallel/zero/zero_wrapper.h"

namespace lockstep::zero {
namespace {

constexpr double MIB = 1024.0 * 1024;
constexpr double DEFAULT_BUCKET_MB = 25;
constexpr double DEFAULT_UNIT_MB = 4;

std::string words_of(const std::optional<OffloadOptions>& offload) {
  return offload ? lockstep::str(in_quotes(offload->folder), " with parameters ", offload->parameters)
                 : "none";
}

std::string words_of(const std::optional<std::size_t>& elements) {
  return elements ? lockstep::str(*elements) : "default";
}

void expect_size(double mb, const char* option, const ProcessGroup& group) {
  if (!(mb * MIB >= 1) || mb > 1e9)
    ZERO_WRAPPER.refuse(group, lockstep::str(option, " is ", mb, "; it is a positive number of MiB"));
}

}  // namespace

void check(const ShardedDataParallelOptions& options, const ProcessGroup& group) {
  if (options.stage < 1 || options.stage > 3)
    ZERO_WRAPPER.refuse(
        group,
        lockstep::str("stage is ", options.stage,
                      "; 1 shares out the optimiser's state, 2 the gradients, too, 3 the parameters, too"));
  expect_size(options.unit_mb.value_or(DEFAULT_UNIT_MB), "unit_mb", group);
  expect_size(options.bucket_cap_mb.value_or(DEFAULT_BUCKET_MB), "bucket_cap_mb", group);
}

at::Device device_for(const ShardedDataParallelOptions& options, const at::Device& device,
                      const ProcessGroup& group) {
  at::Device to = options.device.value_or(device);
  const Backend& backend = group.backend();
  if (to.is_cuda() && backend.serves(DeviceType::CUDA)) {
    const auto own = static_cast<at::DeviceIndex>(backend.device_index());
    if (!to.has_index()) to.set_index(own);
    if (to.index() != own)
      ZERO_WRAPPER.refuse(group,
                          lockstep::str("device is ", to, ", and this rank's in the group is cuda:", own));
  } else if (!to.is_cpu()) {
    ZERO_WRAPPER.refuse(group, lockstep::str("device is ", to, ", and backend \"", group.backend_name(),
                                             "\" does not serve it; use init_process_group(\"nccl\")"));
  }
  if (!options.offload) return to;
  const auto& [folder, has_parameters] = *options.offload;
  if (to.is_cpu() && folder.empty())
    ZERO_WRAPPER.refuse(group, "offload of a model in CPU memory needs a folder, for its files");
  if (to.is_cpu() || !has_parameters || options.stage == 3) return to;
  ZERO_WRAPPER.refuse(group, lockstep::str("the model is on ", to,
                                           ", whose parameters are offloaded in stage 3 alone: offload = "
                                           "OffloadOptions{.parameters = true}. This is stage ",
                                           options.stage));
}

// Buckets are as DistributedDataParallel's.
ShardedForm form_of(const ShardedDataParallelOptions& options) {
  const double cap = options.bucket_cap_mb.value_or(DEFAULT_BUCKET_MB);
  const double first = options.bucket_cap_mb.value_or(1);
  return {.stage = options.stage,
          .caps = {.first_bytes = static_cast<std::size_t>(first * MIB),
                   .bytes = static_cast<std::size_t>(cap * MIB)},
          .units = {.unit_bytes = static_cast<std::size_t>(options.unit_mb.value_or(DEFAULT_UNIT_MB) * MIB),
                    .persistence_threshold = options.param_persistence_threshold,
                    .model_persistence_threshold = options.model_persistence_threshold,
                    .max_live = options.max_live_parameters,
                    .prefetch = options.prefetch_bucket_size},
          .parameters = {.master_weights = options.master_weights, .offload = options.offload}};
}

std::string settings_of(const ShardedDataParallelOptions& options) {
  return lockstep::str("broadcast_buffers ", options.broadcast_buffers, ", stage ", options.stage,
                       ", bucket_cap_mb ", options.bucket_cap_mb.value_or(DEFAULT_BUCKET_MB),
                       ", master_weights ", options.master_weights, ", offload ", words_of(options.offload),
                       ", device ", options.device ? c10::DeviceTypeName(options.device->type()) : "default",
                       ", unit_mb ", options.unit_mb.value_or(DEFAULT_UNIT_MB),
                       ", param_persistence_threshold ", options.param_persistence_threshold,
                       ", model_persistence_threshold ", options.model_persistence_threshold,
                       ", max_live_parameters ", words_of(options.max_live_parameters),
                       ", prefetch_bucket_size ", words_of(options.prefetch_bucket_size));
}

}  // namespace lockstep::zero
