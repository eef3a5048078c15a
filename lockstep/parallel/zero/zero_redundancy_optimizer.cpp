#include "lockstep/parallel/zero/zero_redundancy_optimizer.h"

#include <cmath>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/job/job.h"
#include "lockstep/parallel/replicas/broadcast_tensors.h"
#include "lockstep/parallel/replicas/verify_models.h"
#include "lockstep/parallel/wrapper.h"
#include "lockstep/parallel/zero/gather_named_tensors.h"
#include "lockstep/parallel/zero/partitioned_state.h"

namespace lockstep {
namespace {

constexpr Wrapper OPTIMIZER_WRAPPER{"ZeroRedundancyOptimizer"};

std::string name_of_parameter(std::size_t number, std::size_t group) {
  return lockstep::str(number, " of group ", group);
}

// Throws InvalidArgument for a parameter that cannot be shared out.
void check_parameters(const std::vector<optim::ParamGroup>& groups, const ProcessGroup& group) {
  std::set<const void*> known;
  std::optional<at::Device> device;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < groups[g].params().size(); ++i) {
      const at::Tensor& parameter = groups[g].params()[i];
      const auto refuse_it = [&](const auto&... why) {
        OPTIMIZER_WRAPPER.refuse(group, lockstep::str("parameter ", name_of_parameter(i, g), ' ', why...));
      };
      if (!parameter.defined()) refuse_it("is undefined");
      if (!parameter.is_leaf()) refuse_it("is the result of an operation, not a leaf");
      if (parameter.layout() != at::kStrided)
        refuse_it("is ", parameter.layout(), "; only dense parameters can be shared out");
      if (repeats(parameter)) refuse_it("was made by expand(); give the optimiser a copy of its own");
      if (!device) device = parameter.device();
      if (parameter.device() != *device)
        refuse_it("is on ", parameter.device(), " and those before it on ", *device,
                  "; make one optimiser for each device");
      if (!known.insert(parameter.unsafeGetTensorImpl()).second)
        refuse_it("is there twice; a shared parameter belongs to one group, once");
    }
  }
  if (known.empty()) OPTIMIZER_WRAPPER.refuse(group, "there are no parameters");
}

std::vector<std::vector<std::int64_t>> elements_of_groups(const std::vector<optim::ParamGroup>& groups) {
  std::vector<std::vector<std::int64_t>> elements;
  for (const optim::ParamGroup& group : groups) {
    elements.emplace_back();
    for (const at::Tensor& parameter : group.params()) elements.back().push_back(parameter.numel());
  }
  return elements;
}

// By number, through all groups.
std::vector<at::Tensor> parameters_of(const std::vector<optim::ParamGroup>& groups) {
  std::vector<at::Tensor> all;
  for (const optim::ParamGroup& group : groups)
    all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

std::vector<std::size_t> sizes_of(const std::vector<optim::ParamGroup>& groups) {
  std::vector<std::size_t> sizes;
  for (const optim::ParamGroup& group : groups) sizes.push_back(group.params().size());
  return sizes;
}

// Takes the place of a rank that has no more inputs.
class StepsOn : public JoinHook {
 public:
  explicit StepsOn(std::function<void()> step) : step_(std::move(step)) {}
  void main_hook(std::uint32_t /*what*/, const JoinRound& /*round*/) override { step_(); }

 private:
  std::function<void()> step_;
};

// Saved as the whole optimiser's state. Each rank writes and reads the state that it owns.
class SharedOutItem : public CheckpointItem {
 public:
  SharedOutItem(ZeroRedundancyOptimizerBase& optimizer, std::function<ItemContents()> contents)
      : optimizer_(optimizer), contents_(std::move(contents)) {}

  std::string_view kind() const override { return "state"; }
  ItemContents contents() override { return contents_(); }
  bool wants(const std::string& name) const override {
    const auto rank = static_cast<std::size_t>(optimizer_.process_group().rank());
    return is_needed(name, optimizer_.partition().of_rank[rank]);
  }
  void load(const LoadedItem& loaded) override { optimizer_.load_state_dict(loaded.tensors); }

 private:
  ZeroRedundancyOptimizerBase& optimizer_;
  std::function<ItemContents()> contents_;
};

}  // namespace

ZeroRedundancyOptimizerBase::ZeroRedundancyOptimizerBase(const std::vector<optim::ParamGroup>& groups,
                                                         LocalKind kind, const ZeroRedundancyOptions& options)
    : torch::optim::Optimizer(std::vector<optim::ParamGroup>(), nullptr),
      group_(options.process_group ? *options.process_group : world()),
      kind_(std::move(kind)),
      exchange_(group_, options.parameters_as_bucket_view) {
  group_.require_member("ZeroRedundancyOptimizer");
  verify(groups);
  share_out(groups);
  std::vector<optim::ParamGroup> parts;
  for (std::size_t g = 0; g < groups.size(); ++g) parts.push_back(my_part(groups, g));
  local_ = kind_.make(parts);
  defaults_ = local_->defaults().clone();
  for (std::size_t g = 0; g < groups.size(); ++g) take_group(groups[g].params(), g);
  place_parameters();
}

void ZeroRedundancyOptimizerBase::refuse_norm_of_all(double max_grad_norm) {
  if (std::isinf(max_grad_norm)) return;
  OPTIMIZER_WRAPPER.refuse(
      lockstep::str("max_grad_norm is ", max_grad_norm,
                    ", and each rank would take the norm of its own gradients alone; call "
                    "clip_grad_norm_() on all parameters before step() instead"));
}

// Collective, so that all ranks refuse alike.
void ZeroRedundancyOptimizerBase::verify(const std::vector<optim::ParamGroup>& groups) const {
  NamedTensors named;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t i = 0; i < groups[g].params().size(); ++i)
      named.emplace_back(name_of_parameter(i, g), groups[g].params()[i]);
  verify_same_model(OPTIMIZER_WRAPPER, describe_model(named, {}, lockstep::str(groups.size(), " groups")),
                    group_);
  check_parameters(groups, group_);
}

void ZeroRedundancyOptimizerBase::share_out(const std::vector<optim::ParamGroup>& groups) {
  partition_ = partition_parameters(elements_of_groups(groups), group_.size());
}

// The local optimiser's group of that number: this rank's parameters with the options of the whole group.
optim::ParamGroup ZeroRedundancyOptimizerBase::my_part(const std::vector<optim::ParamGroup>& groups,
                                                       std::size_t number) const {
  const std::vector<at::Tensor> all = parameters_of(groups);
  std::vector<at::Tensor> own;
  for (const std::size_t parameter : mine()[number]) own.push_back(all[parameter]);
  optim::ParamGroup part(std::move(own));
  if (groups[number].has_options()) part.set_options(groups[number].options().clone());
  return part;
}

// Adds the group to this optimiser, with the options as the local optimiser has completed them.
void ZeroRedundancyOptimizerBase::take_group(const std::vector<at::Tensor>& parameters, std::size_t number) {
  param_groups_.emplace_back(parameters, local_->param_groups()[number].options().clone());
}

void ZeroRedundancyOptimizerBase::place_parameters() {
  const std::vector<at::Tensor> all = parameters_of(param_groups_);
  std::vector<std::vector<at::Tensor>> by_owner;
  for (const NumbersByGroup& groups : partition_.of_rank) {
    by_owner.emplace_back();
    for (const auto& numbers : groups)
      for (const std::size_t number : numbers) by_owner.back().push_back(all[number]);
  }
  exchange_.set_parameters(std::move(by_owner));
}

void ZeroRedundancyOptimizerBase::add_param_group(const optim::ParamGroup& group) {
  std::vector<optim::ParamGroup> groups = param_groups_;
  groups.push_back(group);
  verify(groups);
  ParameterPartition before = partition_;
  share_out(groups);
  try {
    kind_.add_group(*local_, my_part(groups, groups.size() - 1));
  } catch (...) {
    partition_ = std::move(before);  // a refused group leaves no trace
    throw;
  }
  take_group(group.params(), groups.size() - 1);
  place_parameters();
}

// Copies the options that schedulers and the program have set since.
void ZeroRedundancyOptimizerBase::give_options() {
  std::size_t shared_out = 0;
  for (const NumbersByGroup& rank : partition_.of_rank)
    for (const auto& numbers : rank) shared_out += numbers.size();
  auto& own = local_->param_groups();
  if (param_groups_.size() != own.size() || parameters_of(param_groups_).size() != shared_out)
    OPTIMIZER_WRAPPER.refuse(group_,
                             "parameters were added through a torch::optim::Optimizer&, and no rank steps "
                             "them; call add_param_group() of the ZeroRedundancyOptimizer itself");
  for (std::size_t g = 0; g < own.size(); ++g) own[g].set_options(param_groups_[g].options().clone());
}

at::Tensor ZeroRedundancyOptimizerBase::step(LossClosure closure) {
  return run_step(closure, /*announces=*/true);
}

at::Tensor ZeroRedundancyOptimizerBase::run_step(const LossClosure& closure, bool announces) {
  give_options();
  consolidated_.reset();
  at::Tensor loss = local_->step(closure);
  // Comes after the closure, in which a wrapper may have announced averages of its own.
  if (announces) Join::notify_join_context(*this)->wait();
  exchange_.run();
  return loss;
}

std::shared_ptr<JoinHook> ZeroRedundancyOptimizerBase::join_hook(const JoinOptions& /*options*/) {
  return std::make_shared<StepsOn>([this] { run_step(nullptr, /*announces=*/false); });
}

void ZeroRedundancyOptimizerBase::consolidate_state_dict(Peer to) {
  const GroupRank root{to.in(group_, "consolidate_state_dict", "to")};
  give_options();
  const NamedTensors own = lockstep::state_dict(*local_);
  NamedTensors all = gather_named_tensors(state_of_parameters(own, mine()), group_, root);
  consolidated_.reset();
  if (group_.rank() != root.rank) return;
  const NamedTensors options = options_of_groups(own, sizes_of(param_groups_));
  all.insert(all.end(), options.begin(), options.end());
  consolidated_ = std::move(all);
}

NamedTensors ZeroRedundancyOptimizerBase::state_dict() const {
  if (!consolidated_)
    OPTIMIZER_WRAPPER.refuse(
        group_,
        lockstep::str("the state lies on ", group_.size(), " ranks, and rank ", group_.rank(),
                      " has not got the whole of it since the last step: call consolidate_state_dict(",
                      group_.ranks()[static_cast<std::size_t>(group_.rank())],
                      ") on all ranks before. A checkpoint (CheckpointState::add) needs no consolidation."));
  return *consolidated_;
}

void ZeroRedundancyOptimizerBase::load_state_dict(const NamedTensors& tensors) {
  give_options();
  ShapesByGroup shapes;
  for (const optim::ParamGroup& group : param_groups_) {
    shapes.emplace_back();
    for (const at::Tensor& parameter : group.params()) shapes.back().push_back(parameter.sizes().vec());
  }
  lockstep::load_state_dict(*local_, local_part(tensors, shapes, mine()));
  consolidated_.reset();
  for (std::size_t g = 0; g < param_groups_.size(); ++g)
    param_groups_[g].set_options(local_->param_groups()[g].options().clone());
}

// Saves in the form of an optimiser without sharing, which is made for this purpose.
void ZeroRedundancyOptimizerBase::save(torch::serialize::OutputArchive& archive) const {
  const NamedTensors whole_state = state_dict();
  const auto whole = kind_.make(param_groups_);
  lockstep::load_state_dict(*whole, whole_state);
  whole->save(archive);
}

void ZeroRedundancyOptimizerBase::load(torch::serialize::InputArchive& archive) {
  const auto whole = kind_.make(param_groups_);
  whole->load(archive);
  load_state_dict(lockstep::state_dict(*whole));
}

ItemContents ZeroRedundancyOptimizerBase::checkpoint_contents() {
  give_options();
  const NamedTensors own = lockstep::state_dict(*local_);
  ItemContents contents{.tensors = options_of_groups(own, sizes_of(param_groups_))};
  for (const auto& [name, tensor] : state_of_parameters(own, mine())) {
    const std::vector<std::int64_t> shape = tensor.sizes().vec();
    contents.shards.push_back(
        {.name = name, .shape = shape, .offsets = std::vector<std::int64_t>(shape.size()), .tensor = tensor});
  }
  return contents;
}

std::shared_ptr<CheckpointItem> ZeroRedundancyOptimizerBase::checkpoint_item() {
  return std::make_shared<SharedOutItem>(*this, [this] { return checkpoint_contents(); });
}

}  // namespace lockstep
