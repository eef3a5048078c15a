// ZeroRedundancyOptimizer: shares an optimiser's state among the ranks that train one model, as
// torch.distributed.optim.ZeroRedundancyOptimizer. Each of N ranks has the state of its own parameters alone,
// about one N-th, and steps these. Then every rank gets the parameters of all ranks.
//
//   dist::DistributedDataParallel ddp(net);
//   const auto options = dist::optim::AdamWOptions(1e-3).weight_decay(0.1);
//   dist::ZeroRedundancyOptimizer<dist::optim::AdamW> optimizer(ddp.parameters(), options);
//   for (auto& batch : loader) {
//     optimizer.zero_grad();
//     loss_of(ddp->forward(batch.data)).backward();
//     optimizer.step();
//   }
//
// With parameter groups, and with parameters that stay in their memory:
//
//   std::vector<dist::optim::ParamGroup> groups;
//   groups.emplace_back(ddp.parameters(), std::make_unique<torch::optim::AdamOptions>(1e-3));
//   dist::ZeroRedundancyOptimizer<torch::optim::Adam> optimizer(groups, torch::optim::AdamOptions(),
//                                                               {.parameters_as_bucket_view = false});
//
// Optimisers  Any torch::optim::Optimizer that is made of parameter groups and options: those of
//             lockstep::optim, libtorch's except LBFGS (which looks at all parameters at once), a program's
//             own. Norms of LARS and LAMB are of whole parameters, which one rank has. LAMB's max_grad_norm
//             is of all gradients and refused. Call clip_grad_norm_() before step() instead.
// Gradients   Every rank has those of all parameters, averaged, as DistributedDataParallel leaves them.
//             Without averages each rank steps with its own gradients.
// The bits    of the parameters are those of the same optimiser that steps everything on every rank.
// Partition   parameter_partition.h: Python's. A parameter has one owner. Options of groups are the same on
//             all ranks. Schedulers and programs change param_groups() as they do without sharing, alike on
//             all ranks. Each step first copies them to the local optimiser. Bucket view
//             parameters_as_bucket_view, the default, moves the parameters into flat memory that the ranks
//             share. Each rank then copies the other ranks' parameters from there. Without it, each owner
//             broadcasts its parameters from their memory, which takes several times as long.
// State       With CheckpointState::add("optimizer", optimizer), each rank writes the state that it owns. Any
//             number of ranks loads it, into this class or into the optimiser without sharing, and from that
//             one. For other files, all ranks first consolidate the whole state on one rank:
//
//               optimizer.consolidate_state_dict(/*to=*/0);
//               if (dist::get_rank() == 0) torch::save(optimizer, "optimizer.pt");
//
//             Until the next step, that rank can call state_dict(),
//             save_state_dict(dist::state_dict(optimizer), file) and torch::save(optimizer, file).
//             state_dict() is that of the optimiser without sharing, by number (optim/optimizer.h), and so
//             are the files. Every rank loads the whole state with load_state_dict() or
//             torch::load(optimizer, file), which keep this rank's part. An optimiser that
//             torch_optimizer_state.h does not know can step, but saving or loading it is an InvalidArgument.
// GradScaler  skips a step on all ranks alike, as without sharing.
// Join        dist::join({&ddp, &optimizer}, loop): a rank without inputs steps its parameters with the other
//             ranks' averages.
// Collective  construction, add_param_group(), step(), consolidate_state_dict(): every rank of the group,
//             with the same parameters in the same order. step() blocks until this rank has all parameters. A
//             closure runs on every rank.
// Fails       InvalidArgument, on all ranks alike: no parameters; a parameter that is sparse, made by
//             expand(), on another device, not a leaf, or listed twice; a group that was added through a
//             torch::optim::Optimizer&; state_dict() on a rank without the whole state; a state that does not
//             fit. Mismatch: ranks list different parameters. An error of the local optimiser in step() is
//             thrown on that rank alone. The other ranks hear of that rank's end, or wait for it until the
//             deadline.
// Differs     from Python: step() drops a consolidated state, where Python goes on to return the old one.
//             Dtypes may be mixed, also in a bucket view, which has frozen parameters, too. `to` is a rank of
//             the whole job (peer.h).
// Limits      no overlap_with_ddp: step() begins when the gradients are complete. Options that a local
//             optimiser changes itself do not show in param_groups().
// Lifetime    The object must not move. The destructor does not communicate.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "lockstep/checkpoint/checkpoint_item.h"
#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/job/join.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/torch_optimizer_state.h"
#include "lockstep/parallel/zero/parameter_exchange.h"
#include "lockstep/parallel/zero/parameter_partition.h"
#include "lockstep/tensor/named_tensors.h"

namespace torch::optim {
class LBFGS;
}

namespace lockstep {

struct ZeroRedundancyOptions {
  std::optional<ProcessGroup> process_group = {};  // default: world()
  bool parameters_as_bucket_view = true;           // Python's default is false
};

// The common part of all forms. ZeroRedundancyOptimizer below makes it.
class ZeroRedundancyOptimizerBase : public torch::optim::Optimizer,
                                    public Joinable,
                                    public NamedState,
                                    public HasCheckpointItem {
 public:
  ZeroRedundancyOptimizerBase(const ZeroRedundancyOptimizerBase&) = delete;
  ZeroRedundancyOptimizerBase& operator=(const ZeroRedundancyOptimizerBase&) = delete;
  ~ZeroRedundancyOptimizerBase() override = default;

  // Steps this rank's parameters and gives every rank all parameters. Returns the closure's result on this
  // rank.
  at::Tensor step(LossClosure closure = nullptr) override;
  // Earlier parameters keep their owners.
  void add_param_group(const optim::ParamGroup& group);

  // Gives the whole state to rank `to`. Tensors that this rank owns are the optimiser's own, not copies.
  void consolidate_state_dict(Peer to = 0);
  NamedTensors state_dict() const override;
  // Loads on this rank only, so call it on every rank. Copies.
  void load_state_dict(const NamedTensors& tensors) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
  std::shared_ptr<CheckpointItem> checkpoint_item() override;

  std::shared_ptr<JoinHook> join_hook(const JoinOptions& options) override;
  const ProcessGroup& join_process_group() const override { return group_; }

  const ProcessGroup& process_group() const { return group_; }
  // Which rank steps which parameters.
  const ParameterPartition& partition() const { return partition_; }

 protected:
  // The type of the local optimiser and its default options.
  struct LocalKind {
    std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<optim::ParamGroup>&)> make;
    std::function<void(torch::optim::Optimizer&, const optim::ParamGroup&)> add_group;
  };

  ZeroRedundancyOptimizerBase(const std::vector<optim::ParamGroup>& groups, LocalKind kind,
                              const ZeroRedundancyOptions& options);
  torch::optim::Optimizer& local() { return *local_; }
  static void refuse_norm_of_all(double max_grad_norm);

 private:
  const NumbersByGroup& mine() const { return partition_.of_rank[static_cast<std::size_t>(group_.rank())]; }
  optim::ParamGroup my_part(const std::vector<optim::ParamGroup>& groups, std::size_t number) const;
  void verify(const std::vector<optim::ParamGroup>& groups) const;
  void share_out(const std::vector<optim::ParamGroup>& groups);
  void take_group(const std::vector<at::Tensor>& parameters, std::size_t number);
  void place_parameters();
  void give_options();
  at::Tensor run_step(const LossClosure& closure, bool announces);
  ItemContents checkpoint_contents();

  ProcessGroup group_;
  LocalKind kind_;
  ParameterPartition partition_;
  ParameterExchange exchange_;
  // the optimiser of this rank's parameters, in the same groups
  std::unique_ptr<torch::optim::Optimizer> local_;
  std::optional<NamedTensors> consolidated_;
};

template <std::derived_from<torch::optim::Optimizer> LocalOptimizer>
class ZeroRedundancyOptimizer : public ZeroRedundancyOptimizerBase {
  static_assert(!std::is_same_v<LocalOptimizer, torch::optim::LBFGS>,
                "LBFGS looks at all parameters at once, and its ranks would go different ways");

 public:
  // An option that a group leaves at its default takes the value in `defaults`, as in the local optimiser.
  template <std::derived_from<torch::optim::OptimizerOptions> Defaults>
  ZeroRedundancyOptimizer(const std::vector<optim::ParamGroup>& groups, const Defaults& defaults,
                          const ZeroRedundancyOptions& options = {})
      : ZeroRedundancyOptimizerBase(groups, kind_of(defaults), options) {}
  template <std::derived_from<torch::optim::OptimizerOptions> Defaults>
  ZeroRedundancyOptimizer(const std::vector<at::Tensor>& parameters, const Defaults& defaults,
                          const ZeroRedundancyOptions& options = {})
      : ZeroRedundancyOptimizer(std::vector<optim::ParamGroup>{optim::ParamGroup(parameters)}, defaults,
                                options) {}

  // Python's `optim`: the optimiser of this rank's parameters alone.
  LocalOptimizer& local_optimizer() { return static_cast<LocalOptimizer&>(local()); }

 private:
  template <typename Defaults> static LocalKind kind_of(const Defaults& defaults) {
    if constexpr (requires { defaults.max_grad_norm(); }) refuse_norm_of_all(defaults.max_grad_norm());
    return {.make =
                [defaults](const std::vector<optim::ParamGroup>& groups) {
                  return std::make_unique<LocalOptimizer>(groups, defaults);
                },
            .add_group =
                [](torch::optim::Optimizer& local, const optim::ParamGroup& group) {
                  static_cast<LocalOptimizer&>(local).add_param_group(group);
                }};
  }
};

}  // namespace lockstep
