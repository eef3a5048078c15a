// powerSGD: gradients travel as low-rank factors. A gradient matrix M of n rows and m columns is sent as P (n
// x r) and Q (m x r) with M ~ P Q^T. Each step is one step of power iteration for all ranks together, so that
// over the steps it finds the best directions. Vogels, Karimireddy, Jaggi: "PowerSGD: Practical Low-Rank
// Gradient Compression for Distributed Optimization", NeurIPS 2019, Algorithms 1 and 2. Options, order of
// steps and random numbers are those of Python's powerSGD_hook.
//
//   ddp.register_comm_hook(std::make_shared<dist::PowerSgdHook>(
//       dist::PowerSgdOptions{.matrix_approximation_rank = 4, .start_powerSGD_iter = 100}));
//
// What        A parameter of two or more dimensions is a matrix of its first dimension and all others. It is
//             compressed if that pays (see min_compression_rate). Other parameters are sent as they are. The
//             result is P P^T times the mean matrix.
// Sends       Per step r * (n + m) numbers per matrix, and all numbers of the other parameters, in the
//             gradient's dtype (float32 for 16-bit types). There are two all_reduces per bucket. The second
//             starts at the end of backward.
// Memory      With error feedback one gradient, with warm start r * m numbers per matrix.
// Bound       In one step the error is at most the L2 norm of the mean. How much smaller it is depends on the
//             gradients. Over many steps, error feedback adds what one step leaves out to the next one.
// Differs     from Python: a matrix of zeros gives zeros (in Python NaN, without an epsilon). After a
//             gradient that is not finite the matrix starts anew (in Python its error stays NaN for good).
//             start_powerSGD_iter may be 0. Errors are kept per parameter, and only for compressed parameters
//             (those of the others add up to zero).
#pragma once

#include <map>
#include <random>

#include "lockstep/parallel/gradients/hooks/bucket_numbers.h"
#include "lockstep/parallel/gradients/hooks/comm_hook.h"
#include "lockstep/parallel/gradients/hooks/error_feedback.h"

namespace lockstep {

struct PowerSgdOptions {
  std::int64_t matrix_approximation_rank = 1;  // r
  // NOLINTNEXTLINE(readability-identifier-naming): torch's name
  std::int64_t start_powerSGD_iter = 1000;  // number of first steps that are plain averages
  double min_compression_rate = 2;          // a matrix is compressed if r * (n + m) * this < n * m
  bool use_error_feedback = true;
  bool warm_start = true;                // begins with the Q of the last step; otherwise with random numbers
  double orthogonalization_epsilon = 0;  // added to norms before they divide
  std::uint32_t random_seed = 0;         // for the first Q; the same on all ranks
};

class PowerSgdHook : public CommHook {
 public:
  // Throws InvalidArgument: a rank below 1, a negative start, rate or epsilon.
  explicit PowerSgdHook(const PowerSgdOptions& options = {});
  std::string describe() const override;
  HookStep run(const GradBucket& bucket) override;
  HookErrorBound error_bound(at::ScalarType dtype, int ranks) const override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

  std::int64_t iteration() const { return iteration_; }  // number of averaged backward passes so far

 private:
  struct Matrix {
    std::string name;
    at::Tensor values;  // n x m, in the gradient's own memory
    at::Tensor p;       // n x r, in the first message
    at::Tensor q;       // m x r, in the second message
    at::Tensor sent;    // this rank's contribution, with error feedback
  };
  struct Round;  // of one bucket

  void take_parts(Round& round) const;
  void lay_out_messages(Round& round);
  void begin(Round& round);
  HookStep middle(const std::shared_ptr<Round>& round);
  void finish(Round& round);
  std::uint64_t next_seed();
  void restart_random_numbers(std::uint64_t draws);

  const PowerSgdOptions options_;
  std::int64_t iteration_ = 0;
  std::mt19937 random_;
  std::uint64_t draws_ = 0;  // number of draws from random_
  ErrorFeedback errors_;
  std::map<std::string, at::Tensor> qs_;  // with warm start
  HookMemory first_messages_;             // all Ps, then what is not compressed
  HookMemory second_messages_;            // all Qs
};

}  // namespace lockstep
