// DDP on a group of which only this rank exists, for tests of what it does here.
//
//   auto backend = fake_group();
//   Chain net;
//   DistributedDataParallel ddp(net, one_each(backend));
#pragma once

#include <torch/torch.h>

#include <memory>

#include "lockstep/parallel/ddp/distributed_data_parallel.h"
#include "testing/fake_backend.h"

namespace lockstep::testing {

inline std::shared_ptr<FakeBackend> fake_group(int size = 2) { return std::make_shared<FakeBackend>(size); }

inline DistributedDataParallelOptions one_bucket(const std::shared_ptr<FakeBackend>& backend) {
  return {.process_group = ProcessGroup(backend), .bucket_cap_mb = 25};
}

// A cap that gives every gradient a bucket of its own.
inline DistributedDataParallelOptions one_each(const std::shared_ptr<FakeBackend>& backend) {
  return {.process_group = ProcessGroup(backend), .bucket_cap_mb = 1.0 / 1024 / 1024};
}

struct ChainImpl : torch::nn::Module {  // three scalars, used in the order of registration: 2 * 2 * 2 * x
  ChainImpl() {
    for (const char* name : {"first", "middle", "last"}) register_parameter(name, torch::full({1}, 2.0));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = x;
    for (const auto& weight : parameters()) y = y * weight;
    return y;
  }
};
TORCH_MODULE(Chain);

}  // namespace lockstep::testing
