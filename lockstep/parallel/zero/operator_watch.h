// OperatorWatch: tells GatheredUnits which parameters each operator of libtorch is about to read, before it
// runs, in forward and in backward.
//
//   OperatorWatch watch(units);               // until it is destroyed
//   y = torch::nn::functional::linear(x, w);  // units.use(...) for the memory of w; units.done() after it
//
// libtorch calls an observer (at::RecordFunction) with the inputs of every operator that goes through its
// dispatcher. Inputs are also lists of tensors, views of a parameter, the target of an operation in place,
// and what a backward has saved. It does not see who reads a tensor's memory himself:
//
//   data_ptr(), accessor(), and what is made of them, as torch::save() and from_blob()
//   an operator that runs under at::DisableRecordFunctionGuard
//
// Lifetime what an operator reads holds the units, also if the operator lets the parameter go.
// Cost     a fraction of a microsecond an operator, of all threads, as long as there is a watch.
// Threads  any.
#pragma once

namespace lockstep {

class GatheredUnits;

class OperatorWatch {
 public:
  // The units outlive it, and what is read in their memory holds it.
  explicit OperatorWatch(GatheredUnits& units);
  OperatorWatch(const OperatorWatch&) = delete;
  OperatorWatch& operator=(const OperatorWatch&) = delete;
  ~OperatorWatch();

 private:
  GatheredUnits& units_;
};

}  // namespace lockstep
