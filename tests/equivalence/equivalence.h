// The C++ side of the equivalence suite: a case trains as its namesake in cases_*.py does, from the same file
// of weights and batches, and leaves a record that equivalence.py compares. The head of equivalence.py says
// how to add one.
//
//   EQUIVALENCE_CASE(plain) {
//     Net net;
//     run.load(*net);  // on rank 0; the others get it from DDP
//     lockstep::DistributedDataParallel ddp(net, {.bucket_cap_mb = 0.001});
//     torch::optim::SGD optimizer(ddp.parameters(), 0.1);
//     for (run.step = 0; run.step < run.steps(); ++run.step) {
//       optimizer.zero_grad();
//       auto loss = torch::mse_loss(ddp->forward(run.share("x")), run.share("y"));
//       loss.backward();
//       run.record_gradients(*net);                                         // of the first and the last step
//       optimizer.step();
//       run.record_loss(loss);
//     }
//     run.record_state(*net);
//   }
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace equivalence {

class Run {
 public:
  Run(const std::string& input, std::string output);

  std::int64_t step = 0;
  std::int64_t steps() const { return tensor("steps").item<std::int64_t>(); }
  at::ScalarType dtype() const { return tensor("dtype").scalar_type(); }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // A tensor of the file, the same on every rank.
  const at::Tensor& tensor(const std::string& name) const;
  // This rank's part of this step's batch; of micro-batch `micro` of `micros`, each of which all ranks share.
  at::Tensor share(const std::string& name, int micro = 0, int micros = 1) const;

  // Makes the model the dtype of the run; on rank 0 also gives it the file's weights, which are called
  // PREFIX.NAME.
  void load(torch::nn::Module& model, const std::string& prefix = "model") const;
  // Of this rank. Recorded is the mean over the ranks.
  void record_loss(const at::Tensor& loss);
  void set_losses(const std::vector<double>& losses) { losses_ = losses; }  // of all steps, in place of that
  void record_gradients(const torch::nn::Module& model, const std::string& prefix = "model");
  // Parameters and buffers. A parameter that is not bit-identical on all ranks is an error.
  void record_state(const torch::nn::Module& model, const std::string& prefix = "model");
  // Anything else: compared with place.record[name].
  void record(const std::string& name, const at::Tensor& value) { record_[name] = value.detach().clone(); }
  void save() const;  // on rank 0

 private:
  std::map<std::string, at::Tensor> file_;
  std::string output_;
  int rank_;
  int ranks_;
  std::vector<double> losses_;
  std::map<std::string, at::Tensor> record_;
};

using Body = void (*)(Run& run);
std::map<std::string, Body>& registry();
inline bool add(const std::string& name, Body body) { return registry().emplace(name, body).second; }

}  // namespace equivalence

// NOLINTBEGIN(cppcoreguidelines-macro-usage): a case needs a function and its registration under one name.
#define EQUIVALENCE_CASE(name)                                                         \
  static void equivalence_##name(::equivalence::Run& run);                             \
  static const bool registered_##name = ::equivalence::add(#name, equivalence_##name); \
  static void equivalence_##name(::equivalence::Run& run)
// NOLINTEND(cppcoreguidelines-macro-usage)
