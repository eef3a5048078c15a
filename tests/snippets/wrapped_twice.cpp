// Must not compile (CMakeLists.txt has what the compiler must say): a wrapper around a wrapper.
#include <torch/nn/modules/linear.h>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"

void wrap_twice() {
  torch::nn::Linear net(3, 1);
  lockstep::DistributedDataParallel ddp(net);
  lockstep::DistributedDataParallel again(ddp, {.bucket_cap_mb = 1});
}
