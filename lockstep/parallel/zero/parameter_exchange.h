// ParameterExchange: gives every rank the parameters that each rank has stepped.
//
//   ParameterExchange exchange(group, /*as_bucket_view=*/false);
//   exchange.set_parameters({{weight}, {bias}});      // by owner: rank 0 stepped weight, rank 1 bias
//   exchange.run();                                   // now all ranks have both
//
// As they are      each owner broadcasts its parameters, small ones packed together, from where they lie.
// As bucket views  the parameters are moved into one flat tensor for each dtype, in memory that ranks share,
//                  owner after owner. One all_gather then has each rank copy what it lacks straight from the
//                  owners' memory. A parameter that was moved elsewhere since (torch::load() into the model,
//                  set_data()) keeps its values and is moved back.
// Autograd         values are written outside of it. The version counters of parameters that changed are
//                  raised, as their owner's optimiser does: a graph that still needs the old values says so.
// Collective       run(): every rank of the group, with the same parameters by the same owners. As bucket
//                  views strides are alike on all ranks, too.
// Fails            as broadcast and all_gather do.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

class ParameterExchange {
 public:
  ParameterExchange(ProcessGroup group, bool as_bucket_view);

  // Parameters that came earlier may come again. All are dense, on one device. As bucket views they have
  // their new places when this returns.
  void set_parameters(std::vector<std::vector<at::Tensor>> by_owner);
  void run();

 private:
  // All parameters of one dtype.
  struct Bucket {
    at::Tensor flat;
    std::vector<at::Tensor> parts;  // of it, by owner
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> places;  // of each parameter, in `flat`
  };

  Bucket make_bucket(at::ScalarType dtype) const;
  static void move_in(const Bucket& bucket);

  ProcessGroup group_;
  bool as_bucket_view_;
  std::vector<std::vector<at::Tensor>> by_owner_;
  std::vector<Bucket> buckets_;  // empty unless as bucket views
};

}  // namespace lockstep
