// ParameterExchange: gives every rank the parameters that each rank has stepped.
//
//   ParameterExchange exchange(group, /*as_bucket_view=*/false);
//   exchange.set_parameters({{weight}, {bias}});      // by owner: rank 0 stepped weight, rank 1 bias
//   exchange.run();                                   // now all ranks have both
//
// In place         Each owner broadcasts its parameters from their own memory, small ones packed
//                  together.
// As bucket views  The parameters are moved into one flat tensor for each dtype, in memory that ranks share,
//                  owner after owner. In one all_gather each rank then copies the other owners' parts
//                  straight from their memory. A parameter that was moved away since (torch::load() into the
//                  model, set_data()) keeps its values and is moved back.
// Autograd         Values are written outside of it. The version counters of parameters that changed are
//                  raised, as their owner's optimiser does. So a graph that still needs the old values
//                  throws.
// Collective       run(): every rank of the group, with the same parameters by the same owners. As bucket
//                  views, strides are equal on all ranks, too.
// Fails            as broadcast and all_gather do.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

class ParameterExchange {
 public:
  ParameterExchange(ProcessGroup group, bool as_bucket_view);

  // Earlier parameters may come again. All are dense, on one device. With bucket views they have their new
  // places when this returns.
  void set_parameters(std::vector<std::vector<at::Tensor>> by_owner);
  void run();

 private:
  // All parameters of one dtype.
  struct Bucket {
    at::Tensor flat;
    std::vector<at::Tensor> parts;  // of the flat tensor, by owner
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> places;  // of each parameter, within `flat`
  };

  Bucket make_bucket(at::ScalarType dtype) const;
  static void move_in(const Bucket& bucket);

  ProcessGroup group_;
  bool as_bucket_view_;
  std::vector<std::vector<at::Tensor>> by_owner_;
  std::vector<Bucket> buckets_;  // empty unless as bucket views
};

}  // namespace lockstep
