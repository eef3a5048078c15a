#include "lockstep/parallel/gradients/hooks/power_sgd_hook.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse_power_sgd(const std::string& what) { throw InvalidArgument("powerSGD: " + what); }

// Gram-Schmidt, column by column, in place. A column that the other columns span already becomes zero or
// noise, as in Python.
void orthogonalize_gram_schmidt(const at::Tensor& matrix, double epsilon) {
  const std::int64_t columns = matrix.size(1);
  for (std::int64_t i = 0; i < columns; ++i) {
    const at::Tensor column = matrix.narrow(1, i, 1);
    const at::Tensor norm = at::linalg_vector_norm(column) + epsilon;
    column.div_(at::where(norm == 0, at::scalar_tensor(1, norm.options()), norm));
    if (i + 1 == columns) break;
    const at::Tensor rest = matrix.narrow(1, i + 1, columns - i - 1);
    rest.sub_(column * (column * rest).sum(0, /*keepdim=*/true));
  }
}

void orthogonalize(const at::Tensor& matrix, double epsilon) {
  if (matrix.size(1) <= 2) return orthogonalize_gram_schmidt(matrix, epsilon);
  matrix.copy_(std::get<0>(at::linalg_qr(matrix)));
}

// The outermost dimension in the memory of a gradient, along which the memory falls into rows.
std::int64_t rows_of(const at::Tensor& parameter) {
  if (parameter.dim() == 0) return 1;
  const auto strides = parameter.strides();
  const auto outermost = std::max_element(strides.begin(), strides.end()) - strides.begin();
  return parameter.size(outermost);
}

bool is_finite(const at::Tensor& tensor) { return tensor.isfinite().all().item<bool>(); }

}  // namespace

struct PowerSgdHook::Round {
  GradBucket bucket;
  at::Tensor reals;  // numbers of the bucket, or a float32 copy of them
  std::vector<Matrix> matrices;
  std::vector<at::Tensor> others;  // parts of `reals` that are not compressed
  at::Tensor first, second;        // messages
};

PowerSgdHook::PowerSgdHook(const PowerSgdOptions& options) : options_(options), random_(options.random_seed) {
  if (options.matrix_approximation_rank < 1) {
    refuse_power_sgd(lockstep::str("matrix_approximation_rank is ", options.matrix_approximation_rank,
                                   "; it must be at least 1"));
  }
  if (options.start_powerSGD_iter < 0 || !(options.min_compression_rate >= 0) ||
      !(options.orthogonalization_epsilon >= 0)) {
    refuse_power_sgd(
        "start_powerSGD_iter, min_compression_rate and orthogonalization_epsilon must not be negative");
  }
}

std::string PowerSgdHook::describe() const {
  return lockstep::str("powerSGD(matrix_approximation_rank ", options_.matrix_approximation_rank,
                       ", start_powerSGD_iter ", options_.start_powerSGD_iter, ", min_compression_rate ",
                       options_.min_compression_rate, ", use_error_feedback ", options_.use_error_feedback,
                       ", warm_start ", options_.warm_start, ", orthogonalization_epsilon ",
                       options_.orthogonalization_epsilon, ", random_seed ", options_.random_seed, ")");
}

HookErrorBound PowerSgdHook::error_bound(at::ScalarType dtype, int) const {
  // (I - P P^T) never makes a matrix larger; the rest is rounding.
  return {.of_norm = 1.01 + (is_16_bits(dtype) ? unit_roundoff(dtype) : 0)};
}

// numpy's RandomState(seed).randint(1_000_000_000): draws 30 bits of the same Mersenne twister until the
// number is small enough.
std::uint64_t PowerSgdHook::next_seed() {
  for (;;) {
    ++draws_;
    const std::uint64_t drawn = random_() & 0x3fffffffU;
    if (drawn < 1'000'000'000) return drawn;
  }
}

void PowerSgdHook::restart_random_numbers(std::uint64_t draws) {
  random_.seed(options_.random_seed);
  random_.discard(draws);
  draws_ = draws;
}

HookStep PowerSgdHook::run(const GradBucket& bucket) {
  const bool compress = iteration_ >= options_.start_powerSGD_iter;
  iteration_ += bucket.is_last() ? 1 : 0;
  if (!compress) return all_reduce(bucket.buffer(), ReduceOp::AVG, bucket.group(), /*async_op=*/true);
  const c10::NoGradGuard no_grad;
  const auto round = std::make_shared<Round>(Round{.bucket = bucket, .reals = wide_reals(bucket)});
  take_parts(*round);
  lay_out_messages(*round);
  begin(*round);
  return {all_reduce(round->first, ReduceOp::AVG, bucket.group(), /*async_op=*/true),
          [this, round] { return middle(round); }};
}

void PowerSgdHook::take_parts(Round& round) const {
  for (const GradBucketPart& part : round.bucket.parts()) {
    const at::Tensor flat = part_of(round.reals, part);
    const std::int64_t rows = rows_of(part.parameter);
    const std::int64_t columns = rows == 0 ? 0 : flat.numel() / rows;
    const std::int64_t rank = std::min({rows, columns, options_.matrix_approximation_rank});
    const double compressed = static_cast<double>(rank * (rows + columns)) * options_.min_compression_rate;
    if (rank > 0 && compressed < static_cast<double>(flat.numel())) {
      round.matrices.push_back({.name = part.name, .values = flat.view({rows, columns})});
    } else {
      round.others.push_back(flat);
    }
  }
}

void PowerSgdHook::lay_out_messages(Round& round) {
  const auto rank_of = [&](const Matrix& matrix) {
    return std::min({matrix.values.size(0), matrix.values.size(1), options_.matrix_approximation_rank});
  };
  std::int64_t first = 0;
  std::int64_t second = 0;
  for (const Matrix& matrix : round.matrices) {
    first += matrix.values.size(0) * rank_of(matrix);
    second += matrix.values.size(1) * rank_of(matrix);
  }
  const std::int64_t all_ps = first;
  for (const at::Tensor& other : round.others) first += other.numel();
  const auto as = round.reals.options();
  const std::size_t index = round.bucket.index();
  round.first = first_messages_.of(index, first, as, round.bucket.group());
  round.second = second_messages_.of(index, second, as, round.bucket.group());
  first = second = 0;
  for (Matrix& matrix : round.matrices) {
    const auto place = [rank = rank_of(matrix)](const at::Tensor& message, std::int64_t& at,
                                                std::int64_t rows) {
      const at::Tensor view = message.narrow(0, at, rows * rank).view({rows, rank});
      at += rows * rank;
      return view;
    };
    matrix.p = place(round.first, first, matrix.values.size(0));
    matrix.q = place(round.second, second, matrix.values.size(1));
  }
  first = all_ps;
  for (const at::Tensor& other : round.others) {
    round.first.narrow(0, first, other.numel()).copy_(other);
    first += other.numel();
  }
}

// Computes P = M Q. Q is that of the last step or random, the same on all ranks.
void PowerSgdHook::begin(Round& round) {
  const auto is_new = [&](const Matrix& matrix) {
    return !options_.warm_start || !qs_.contains(matrix.name);
  };
  std::optional<at::Generator> generator;
  if (std::any_of(round.matrices.begin(), round.matrices.end(), is_new)) {
    generator = at::detail::createCPUGenerator(next_seed());
  }
  for (Matrix& matrix : round.matrices) {
    if (is_new(matrix)) {
      matrix.q.copy_(at::randn(matrix.q.sizes(), generator, matrix.q.options().device(at::kCPU)));
    } else {
      const at::Tensor& before = qs_[matrix.name];
      if (before.sizes() != matrix.q.sizes() || before.scalar_type() != matrix.q.scalar_type()) {
        refuse_power_sgd(lockstep::str("the state has ", before.sizes(), " ", before.scalar_type(),
                                       " for the Q of \"", printable(matrix.name), "\", expected ",
                                       matrix.q.sizes(), " ", matrix.q.scalar_type(),
                                       ": it is of another model or rank"));
      }
      matrix.q.copy_(before);
    }
    orthogonalize(matrix.q, options_.orthogonalization_epsilon);
    if (options_.use_error_feedback) {
      errors_.add_to(matrix.name, matrix.values.view({-1}));
      matrix.sent = matrix.values.clone();
    }
    at::mm_out(matrix.p, matrix.values, matrix.q);
  }
}

// P is now the mean. Computes Q = M^T P.
HookStep PowerSgdHook::middle(const std::shared_ptr<Round>& round) {
  const c10::NoGradGuard no_grad;
  std::int64_t at = round->first.numel();
  for (auto other = round->others.rbegin(); other != round->others.rend(); ++other) {
    at -= other->numel();
    other->copy_(round->first.narrow(0, at, other->numel()));
  }
  for (Matrix& matrix : round->matrices) {
    orthogonalize(matrix.p, options_.orthogonalization_epsilon);
    at::mm_out(matrix.q, matrix.values.t(), matrix.p);
  }
  Work sent;
  if (!round->matrices.empty()) {
    sent = all_reduce(round->second, ReduceOp::AVG, round->bucket.group(), /*async_op=*/true);
  }
  return {sent, [this, round] {
            finish(*round);
            return HookStep();
          }};
}

// Computes M = P Q^T, and the error that this leaves.
void PowerSgdHook::finish(Round& round) {
  const c10::NoGradGuard no_grad;
  for (Matrix& matrix : round.matrices) {
    at::mm_out(matrix.values, matrix.p, matrix.q.t());
    // P and Q have the same bits on all ranks, so all decide alike
    const bool usable = is_finite(matrix.p) && is_finite(matrix.q);
    if (options_.use_error_feedback && usable) {
      errors_.keep(matrix.name, matrix.sent.sub_(matrix.values).view({-1}));
    } else {
      errors_.drop(matrix.name);
    }
    if (options_.warm_start && usable) {
      qs_[matrix.name] = matrix.q.clone();
    } else {
      qs_.erase(matrix.name);
    }
  }
  if (!round.reals.is_alias_of(round.bucket.buffer())) round.bucket.reals().copy_(round.reals);
}

CommHook::State PowerSgdHook::state_dict() const {
  State state("tensor");
  state.insert("iteration", at::scalar_tensor(iteration_, at::kLong));
  state.insert("random_draws", at::scalar_tensor(static_cast<std::int64_t>(draws_), at::kLong));
  for (const auto& [name, q] : qs_) state.insert("q." + name, q.clone());
  errors_.save(state);
  return state;
}

void PowerSgdHook::load_state_dict(const State& state) {
  const auto is_number = [&](const char* key) {
    const at::Tensor* found = state.find(key);
    return found != nullptr && found->numel() == 1 && found->item<std::int64_t>() >= 0;
  };
  if (!is_number("iteration") || !is_number("random_draws")) {
    refuse_power_sgd(R"(the state to load lacks "iteration" or "random_draws": it is of another hook)");
  }
  ErrorFeedback errors;
  std::map<std::string, at::Tensor> qs;
  for (const auto& item : state) {
    if (item.key() == "iteration" || item.key() == "random_draws" || errors.load(item.key(), item.value()))
      continue;
    if (!item.key().starts_with("q.")) {
      refuse_power_sgd(
          lockstep::str("the state to load has \"", printable(item.key()), "\": it is of another hook"));
    }
    qs[item.key().substr(2)] = item.value().detach().clone();
  }
  iteration_ = state["iteration"].item<std::int64_t>();
  restart_random_numbers(static_cast<std::uint64_t>(state["random_draws"].item<std::int64_t>()));
  errors_ = std::move(errors);
  qs_ = std::move(qs);
}

}  // namespace lockstep
