// powerSGD: gradients travel as low-rank factors. A gradient matrix M of n rows and m columns is sent as P (n
// x r) and Q (m x r) with M ~ P Q^T: one step of power iteration for all ranks together, which finds the best
// directions over the steps. Vogels, Karimireddy, Jaggi: "PowerSGD: Practical Low-Rank Gradient Compression
// for Distributed Optimization", NeurIPS 2019, Algorithm 1 and 2; options, order of steps and random numbers
// are those of Python's powerSGD_hook.
//
//   ddp.register_comm_hook(std::make_shared<dist::PowerSgdHook>(
//       dist::PowerSgdOptions{.matrix_approximation_rank = 4, .start_powerSGD_iter = 100}));
//
// What        a parameter of two or more dimensions is a matrix of its first dimension and all others, if
//             that pays (see min_compression_rate); all else goes as it is. The result is P P^T times the
//             mean matrix.
// Sends       per step: r * (n + m) numbers per matrix and all numbers of the rest, in the gradient's dtype
//             (float32 for 16-bit types), in two all_reduces per bucket. The second starts at the end of
//             backward.
// Memory      with error feedback one gradient, with warm start r * m numbers per matrix.
// Bound       of one step: the error is at most the norm of the mean, in the L2 norm; how much less depends
//             on the gradients. Of many: with error feedback what a step leaves out is part of the next one.
// Differs     from Python: a matrix of zeros gives zeros (Python NaN, without an epsilon). After a gradient
//             that is not finite the matrix starts anew (in Python its error stays NaN for good).
//             start_powerSGD_iter may be 0. Errors are kept per parameter and only of what is compressed
//             (those of the rest add up to zero).
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
  std::int64_t start_powerSGD_iter = 1000;  // that many steps are plain averages first
  double min_compression_rate = 2;          // a matrix is compressed if r * (n + m) * this < n * m
  bool use_error_feedback = true;
  bool warm_start = true;                // Q of the last step to begin with; otherwise random
  double orthogonalization_epsilon = 0;  // added to norms before they divide
  std::uint32_t random_seed = 0;         // of the first Q; the same on all ranks
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

  std::int64_t iteration() const { return iteration_; }  // averaged backward passes so far

 private:
  struct Matrix {
    std::string name;
    at::Tensor values;  // n x m, where the gradient lies
    at::Tensor p;       // n x r, in the first message
    at::Tensor q;       // m x r, in the second message
    at::Tensor sent;    // what this rank contributed, with error feedback
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
  std::uint64_t draws_ = 0;  // from random_
  ErrorFeedback errors_;
  std::map<std::string, at::Tensor> qs_;  // with warm start
  HookMemory first_messages_;             // all Ps, then what is not compressed
  HookMemory second_messages_;            // all Qs
};

}  // namespace lockstep
