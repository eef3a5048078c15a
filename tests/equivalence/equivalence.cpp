// Runs cases of the equivalence suite, one after the other, in one job.
//
//   lockstep run -n 2 build/tests/equivalence/equivalence CASE IN.safetensors OUT.safetensors
//       [CASE IN OUT]...
#include "tests/equivalence/equivalence.h"

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <cstdio>
#include <set>
#include <stdexcept>
#include <utility>

#include "lockstep/job/job.h"
#include "lockstep/tensor/collectives.h"
#include "lockstep/tensor/state_dict.h"

namespace equivalence {

std::map<std::string, Body>& registry() {
  static std::map<std::string, Body> cases;
  return cases;
}

Run::Run(const std::string& input, std::string output)
    : output_(std::move(output)), rank_(lockstep::get_rank()), ranks_(lockstep::get_world_size()) {
  for (auto& [name, value] : lockstep::load_tensors(input)) file_[name] = value;
}

const at::Tensor& Run::tensor(const std::string& name) const {
  const auto found = file_.find(name);
  if (found == file_.end()) throw std::runtime_error("the input of this case has no \"" + name + "\"");
  return found->second;
}

at::Tensor Run::share(const std::string& name, int micro, int micros) const {
  const at::Tensor all = tensor(name);
  const at::Tensor batch = all[step % all.size(0)];
  const std::int64_t part = batch.size(0) / (micros * ranks_);
  if (part * micros * ranks_ != batch.size(0)) throw std::runtime_error("the batch has no equal shares");
  return batch.narrow(0, (micro * ranks_ + rank_) * part, part);
}

void Run::load(torch::nn::Module& model, const std::string& prefix) const {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, own] : lockstep::state_dict(model)) {  // Module::to() would convert integers, too
    if (own.is_floating_point()) own.set_data(own.to(dtype()));
  }
  if (rank_ != 0) return;
  for (const auto& [name, own] : lockstep::state_dict(model)) own.copy_(tensor(prefix + "." + name));
}

void Run::record_loss(const at::Tensor& loss) {
  const at::Tensor mean = loss.detach().to(at::kDouble).clone();
  lockstep::all_reduce(mean, lockstep::ReduceOp::AVG);
  losses_.push_back(mean.item<double>());
}

void Run::record_gradients(const torch::nn::Module& model, const std::string& prefix) {
  if (step != 0 && step != steps() - 1) return;
  std::set<const void*> seen;  // as in Python, a tensor counts under its first name
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& grad = item.value().grad();
    if (!grad.defined() || !seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    const std::string name = (step == 0 ? "first_grad." : "last_grad.") + prefix + "." + item.key();
    record_[name] = grad.to_dense().detach().contiguous().clone();
  }
}

void Run::record_state(const torch::nn::Module& model, const std::string& prefix) {
  for (const auto& [name, value] : lockstep::state_dict(model)) {
    record_["state." + prefix + "." + name] = value.detach().contiguous().clone();
  }
  for (const auto& item : model.named_parameters()) {
    std::vector<at::Tensor> all;
    for (int r = 0; r < ranks_; ++r) all.push_back(torch::empty_like(item.value()));
    lockstep::all_gather(all, item.value().detach());
    for (const at::Tensor& other : all) {
      if (!torch::equal(other, item.value())) throw std::runtime_error(item.key() + " differs between ranks");
    }
  }
}

void Run::save() const {
  if (rank_ != 0) return;
  lockstep::NamedTensors all(record_.begin(), record_.end());
  all.emplace_back("loss", torch::tensor(losses_, at::kDouble));
  lockstep::save_state_dict(all, output_);
}

}  // namespace equivalence

int main(int argc, char** argv) {
  if (argc < 4 || argc % 3 != 1) return 64;
  at::set_num_threads(1);
  lockstep::init_process_group();
  for (int i = 1; i < argc; i += 3) {
    const auto found = equivalence::registry().find(argv[i]);
    if (found == equivalence::registry().end()) {
      std::fprintf(stderr, "no case is called %s here\n", argv[i]);
      return 64;
    }
    try {
      equivalence::Run run(argv[i + 1], argv[i + 2]);
      found->second(run);
      run.save();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", argv[i], error.what());
      return 1;
    }
  }
  return 0;
}
