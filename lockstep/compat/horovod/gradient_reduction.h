// GradientReduction: which gradients of a DistributedOptimizer are under way, and what is left to do.
//
//   GradientReduction reduction(parameters, options);      // from now on backward starts reductions
//   reduction.synchronize();                               // every .grad holds the result
//
// One parameter in one step:
//
//   WAITING (passes left) ──(its last backward pass; or synchronize())──> READY ──(its group)──> UNDER WAY
//        └─────────────────────────────────── synchronize() <──────────────────────────────────────┘
//
// Threads: autograd's threads call the hooks, under its own lock.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/compat/horovod/optimizer.h"
#include "lockstep/parallel/gradients/autograd_hooks.h"

namespace lockstep::compat::horovod {

class GradientReduction {
 public:
  GradientReduction(const NamedTensors& parameters, const DistributedOptimizerOptions& options);

  void synchronize();
  bool is_under_way();
  void set_passes(int passes);
  void renew_hooks() { hooks_.renew(); }

 private:
  // Parameters that travel together: a group, or one alone.
  struct Unit {
    std::string name;
    std::vector<std::size_t> members;
    std::size_t ready = 0;
  };
  struct UnderWay {
    const Unit* unit;
    std::vector<at::Tensor> sent;
    std::vector<Handle> handles;
  };

  void make_units();
  void on_gradient(std::size_t parameter);
  void make_ready(std::size_t parameter);
  void send(Unit& unit);
  UnderWay send_sparse(const Unit& unit) const;
  void finish(UnderWay& done) const;
  ReduceOptions reduce_options(const std::string& name) const;

  const NamedTensors parameters_;
  const DistributedOptimizerOptions options_;
  std::mutex mutex_;
  // guarded by mutex_
  int passes_;
  std::vector<int> left_;  // backward passes, by parameter
  std::vector<Unit> units_;
  std::vector<std::size_t> unit_of_;
  std::vector<UnderWay> under_way_;
  AutogradHooks hooks_;
};

}  // namespace lockstep::compat::horovod
