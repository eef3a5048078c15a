// OperatorWatch: tells GatheredUnits which parameters each operator of libtorch is about to read, before it
// runs, in forward and in backward.
//
//   OperatorWatch watch(units);               // until it is destroyed
//   y = torch::nn::functional::linear(x, w);  // units.use(...) for the memory of w
//
// libtorch calls an observer (at::RecordFunction) with the inputs of every operator that goes through its
// dispatcher; what a backward has saved is such an input, too. Only a program's own data_ptr() goes past it.
//
// Cost     some microseconds an operator, of all threads, as long as there is a watch.
// Threads  any.
#pragma once

namespace lockstep {

class GatheredUnits;

class OperatorWatch {
 public:
  // The units outlive it.
  explicit OperatorWatch(GatheredUnits& units);
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;
  ~OperatorWatch();

 private:
  GatheredUnits& units_;
};

}  // namespace lockstep
