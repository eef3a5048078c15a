// Optimizer: what the optimisers of lockstep::optim have in common. Each is a torch::optim::Optimizer:
// whatever takes one of those (GradScaler, schedulers, torch::save) takes these, and changing
// `torch::optim::` to `dist::optim::` is all a program needs.
//
//   dist::optim::AdamW optimizer(ddp.parameters(), dist::optim::AdamWOptions(1e-3).weight_decay(0.1));
//   optimizer.zero_grad();
//   loss.backward();
//   optimizer.step();
//
// Parameter groups, as in Python; an option that a group leaves at its default becomes the optimiser's:
//
//   std::vector<dist::optim::ParamGroup> groups;
//   const auto decays = dist::optim::AdamWOptions().weight_decay(0.1);
//   groups.emplace_back(weights, std::make_unique<dist::optim::AdamWOptions>(decays));
//   groups.emplace_back(biases);
//   dist::optim::AdamW optimizer(groups, dist::optim::AdamWOptions(1e-3).weight_decay(0));
//
// Named parameters (ddp.named_parameters().pairs()) in place of tensors: errors and the state dict then name
// them. Shards of parameters, where ranks share an optimiser's work: parameter_shard.h.
//
// Speed       one pass over the memory of a parameter, its gradient and its state (step_kernels.h), for dense
//             float64, float32, float16 and bfloat16 CPU tensors of equal strides; by as many threads as
//             at::get_num_threads() says. Everything else (another device, a gradient of another dtype or
//             layout) goes the slow way of tensor operations, with the same result.
// Precision   float64 in float64, all else in float32. State has the dtype of its parameter, as Python's has.
//             With float16 and bfloat16 parameters small changes round away; keep float32 parameters and
//             autocast instead.
// The bits    do not depend on the number of threads or the instruction set: ranks with equal gradients keep
//             equal parameters.
// Ranks       no optimiser communicates, but for norms over a group (reduce_norms). Gradients averaged by DDP
//             are equal on all ranks, and so is the step. Steps of several ranks without any average are said
//             once (job/unaveraged_steps.h).
// State       torch::save(optimizer, path) and torch::load are interchangeable with libtorch's optimiser of
//             the same name (LARS and LAMB with themselves). state_dict() is Python's, flattened. If all
//             parameters have names, it is by name, as torch.distributed.checkpoint flattens it. A file of it
//             is written by save_state_dict(optimizer.state_dict(), "optimizer.safetensors")
//             (tensor/state_dict.h) and read by
//             optimizer.load_state_dict(load_tensors("optimizer.safetensors")). In Python, by number:
//
//               def optimizer_state(path):                     # for torch.optim.AdamW(...).load_state_dict()
//                   state, groups = {}, {}
//                   for name, value in safetensors.torch.load_file(path).items():
//                       kind, index, key = name.split(".")
//                       part = (state if kind == "state" else groups).setdefault(int(index), {})
//                       part[key] = value if kind == "state" else value.tolist()
//                   return {"state": state, "param_groups": [groups[i] for i in sorted(groups)]}
//
// Fails       InvalidArgument, before any parameter is changed: a sparse gradient (torch::optim has
//             optimisers for these), a gradient of another shape, a parameter in two groups, two parameters
//             of one name, options out of range, a state that does not fit.
// Limits      add_param_group() through a torch::optim::Optimizer& takes no options; call it on the optimiser
//             itself.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lockstep/optim/gradient_parts.h"
#include "lockstep/optim/norm_ranks.h"
#include "lockstep/optim/parameter_shard.h"
#include "lockstep/optim/state_memory.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::optim {

using ParamGroup = torch::optim::OptimizerParamGroup;

class Optimizer : public torch::optim::Optimizer {
 public:
  void add_param_group(const ParamGroup& group);
  void add_param_group(const NamedTensors& parameters);
  void add_param_group(const std::vector<ParameterShard>& shards);
  void add_param_group(const std::vector<ParameterShard>& shards,
                       const torch::optim::OptimizerOptions& options);
  // Over which ranks LARS and LAMB take norms; by default over this rank alone. With a group, step() is
  // collective from then on.
  void reduce_norms(const NormReducer& reducer) { norms_.shards = reducer; }
  // The same for parameters that are pieces of larger ones: their names, and the ranks that have the rest
  // (tensor_parallel::reduce_norms() in parallel/tensor_parallel/model_state.h). Throws InvalidArgument if
  // not all parameters have names.
  void reduce_norms_of_pieces(std::unordered_set<std::string> names, const NormReducer& reducer);
  // The norm of all gradients together (LAMB's max_grad_norm) is that of a model whose layers lie on several
  // ranks: the names of this rank's parameters that count in it, and those ranks
  // (GradientNorm::reduce_norms() in parallel/model_parallel). Throws as the one above.
  void reduce_norm_of_model(std::unordered_set<std::string> counted, const NormReducer& reducer);
  // Where the gradients of parameters are that have no .grad, as the ranks of a machine have them
  // (gradient_parts.h). Throws InvalidArgument for an optimiser that needs each whole gradient twice: LARS
  // and LAMB.
  void look_up_gradients(GradientLookup lookup);
  virtual bool takes_gradient_parts() const { return false; }
  // Where the state of parameters is from now on, as long as it has none yet: in a file, through which each
  // step goes once, reading ahead and writing behind. Throws InvalidArgument after the first step.
  void keep_state_in(std::shared_ptr<FileMemory> file);

  // Calls `closure`, if there is one, with gradients enabled, and returns what it returns. Parameters without
  // a gradient stay.
  at::Tensor step(LossClosure closure = nullptr) override;

  void save(torch::serialize::OutputArchive& archive) const override = 0;
  void load(torch::serialize::InputArchive& archive) override = 0;

  // By number: "state.I.NAME" for the I-th parameter of all groups together, "param_groups.G.OPTION", and
  // "param_groups.G.params": the numbers of the group's parameters. By name, if all parameters have one:
  // "state.PARAMETER.NAME" and "param_groups.PARAMETER.OPTION". Tensors are the optimiser's own, no copies.
  NamedTensors state_dict() const;
  // Copies. Takes either form, by name only if all parameters have one. Options that are not in it stay as
  // they are, and so do parameters without state.
  void load_state_dict(const NamedTensors& tensors);

 protected:
  explicit Optimizer(std::unique_ptr<torch::optim::OptimizerOptions> defaults);

  // One parameter with its gradient; of complex ones the real views.
  struct Gradient {
    std::size_t group;
    at::Tensor key;  // the parameter itself
    at::Tensor param;
    at::Tensor grad;                       // undefined: `parts` has it
    const GradientParts* parts = nullptr;  // null: `grad` has it
    std::int64_t dims = 0;                 // of the whole parameter
    std::int64_t elements = 0;             // of the whole parameter, real numbers
    std::int64_t offset = 0;               // of `param` in the whole parameter
    bool is_piece = false;
    bool counts = true;

    NormShard place() const {
      return {.elements = elements, .offset = offset, .is_piece = is_piece, .counts = counts};
    }
  };
  using State = torch::optim::OptimizerParamState;
  using Options = torch::optim::OptimizerOptions;

  virtual const char* name() const = 0;
  virtual void update(const std::vector<Gradient>& gradients) = 0;
  // What is not set becomes that of the defaults. Throws InvalidArgument for a value out of range or options
  // of another optimiser.
  virtual std::unique_ptr<Options> group_options(const Options& options) const = 0;
  virtual NamedTensors options_as_tensors(const Options& options) const = 0;
  virtual void set_options(Options& options, const std::map<std::string, at::Tensor>& tensors,
                           const std::string& where) const = 0;
  virtual NamedTensors state_as_tensors(const State& state) const = 0;
  virtual std::unique_ptr<State> state_from(const std::map<std::string, at::Tensor>& tensors) const = 0;

  // Throw InvalidArgument for a part (model_part.h) of which nobody said what ranks have the rest: before the
  // norm of a whole parameter is taken, and of a whole model.
  void expect_norm_of_parameter(const Gradient& gradient) const;
  void expect_norm_of_model(const std::vector<Gradient>& gradients) const;
  // As an error names it: by name, or number and group; and its shape.
  std::string called(const at::Tensor& parameter) const;
  // A state dict's tensors of one parameter may have its shape or no dimensions.
  void expect_shape(const std::string& where, const at::Tensor& value, const at::Tensor& parameter) const;
  const NormRanks& norms() const { return norms_; }
  const StateMemory& state_memory() const { return memory_; }

 private:
  using Values = std::map<std::string, at::Tensor>;
  struct Loaded {
    ska::flat_hash_map<void*, std::unique_ptr<State>> states;
    std::vector<std::unique_ptr<Options>> options;  // by group
  };
  struct Known {  // of a parameter with a name
    std::string name;
    std::int64_t dims;
    std::int64_t elements;
    std::int64_t offset;
    std::string shape;     // as errors say it
    at::Tensor parameter;  // of which the key is a part; undefined: the key is all there is
  };

  std::vector<Gradient> gradients() const;
  void expect_names(const char* function) const;
  at::Tensor marked(const at::Tensor& key) const;
  void expect_steppable(const at::Tensor& parameter, const at::Tensor& grad) const;
  void expect_new(const ParamGroup& group) const;
  void expect_new_names(const std::vector<ParameterShard>& shards) const;
  std::unique_ptr<State> fitting_state(Values& values, const std::string& owner,
                                       const at::Tensor& parameter) const;
  Loaded load_by_number(const NamedTensors& tensors) const;
  Loaded load_by_name(const NamedTensors& tensors) const;

  std::unordered_map<const void*, Known> known_;  // by parameter
  NormRanks norms_;
  std::unordered_set<std::string> pieces_;   // names
  std::unordered_set<std::string> counted_;  // names
  GradientLookup lookup_;
  StateMemory memory_;
};

}  // namespace lockstep::optim
