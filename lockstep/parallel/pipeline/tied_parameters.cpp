#include "lockstep/parallel/pipeline/tied_parameters.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/objects.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/job/groups.h"
#include "lockstep/parallel/pipeline/value_specs.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {

void TiedParameters::tie(const ProcessGroup& group, const std::string& name, const at::Tensor& parameter) {
  const Acting acting(Purpose::PIPELINE);
  const std::string mine = parameter.defined() ? to_text(specs_of({{"", parameter}}).front()) : "";
  const std::vector<std::string> all = comm::all_gather_object(group, mine);
  std::vector<int> holders;
  for (int rank = 0; rank < group.size(); ++rank)
    if (!all[static_cast<std::size_t>(rank)].empty()) holders.push_back(rank);
  const auto refuse = [&](const std::string& reason) {
    throw InvalidArgument(str("Pipeline::tie on group \"", group.name(), "\", rank ", group.rank(), " of ",
                              group.size(), ": ", in_quotes(name), ' ', reason));
  };
  if (holders.empty()) refuse("is held by no rank; pass the parameter on the ranks whose stages use it");
  for (const int holder : holders) {
    const std::string& first = all[static_cast<std::size_t>(holders.front())];
    const std::string& other = all[static_cast<std::size_t>(holder)];
    if (other != first)
      refuse(str("is ", first, " on rank ", holders.front(), " but ", other, " on rank ", holder));
  }
  if (holders.size() == 1) return;
  const ProcessGroup tying =
      split_group(group, parameter.defined() ? 0 : -1, group.rank(), {.name = str(group.name(), '/', name)});
  if (!parameter.defined()) return;
  const at::Tensor of_lowest = parameter.detach().clone();
  broadcast(of_lowest, GroupRank{0}, tying);
  // Written only where it differs: the memory may be one copy for several ranks (ShardedDataParallel).
  if (!of_lowest.equal(parameter)) parameter.detach().copy_(of_lowest);
  tied_.push_back({.parameter = parameter, .holders = tying, .earlier = {}});
}

void TiedParameters::begin() {
  for (Tied& tied : tied_) tied.earlier = std::exchange(tied.parameter.mutable_grad(), at::Tensor());
}

void TiedParameters::finish() {
  const Acting acting(Purpose::PIPELINE);
  for (Tied& tied : tied_) {
    at::Tensor& gradient = tied.parameter.mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(tied.parameter);
    all_reduce(gradient, ReduceOp::SUM, tied.holders);
    add_earlier(tied);
  }
}

void TiedParameters::cancel() {
  for (Tied& tied : tied_) add_earlier(tied);
}

void TiedParameters::add_earlier(Tied& tied) {
  if (!tied.earlier.defined()) return;
  const at::NoGradGuard no_grad;
  at::Tensor& gradient = tied.parameter.mutable_grad();
  if (gradient.defined()) tied.earlier.add_(gradient);
  gradient = std::move(tied.earlier);
}

}  // namespace lockstep
