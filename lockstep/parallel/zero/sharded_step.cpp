#include "lockstep/parallel/zero/sharded_step.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/kernels/reduce_kernels.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/optim/chunks.h"
#include "lockstep/optim/norms.h"
#include "lockstep/optim/step_kernels.h"
#include "lockstep/parallel/zero/local_gradients.h"
#include "lockstep/parallel/zero/scatter_layout.h"
#include "lockstep/parallel/zero/scattered_gradients.h"
#include "lockstep/parallel/zero/zero_wrapper.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

// One bucket per dtype: the buckets are not sent one by one, so there is nothing to overlap.
BucketPlan buckets_of(const NamedTensors& trained) {
  std::vector<std::size_t> order(trained.size());
  std::iota(order.begin(), order.end(), 0);
  constexpr std::size_t ALL = std::numeric_limits<std::size_t>::max();
  return bucket_plan(sizes_of(trained), order, {.first_bytes = ALL, .bytes = ALL});
}

}  // namespace

ShardedStep::ShardedStep(const NamedTensors& trained, const ProcessGroup& group, const std::string& model,
                         const ShardedForm& form)
    : group_(group),
      plan_(shard_plan(sizes_of(trained), group.size(), optim::CHUNK_ELEMENTS)),
      parameters_(trained, group, plan_, form.parameters,
                  form.stage == 3 ? std::optional(form.units) : std::nullopt),
      gradients_(make_gradients(trained, model, form)),
      meeting_(gradients_->local(), group, model),
      parts_(trained.size()) {}

std::unique_ptr<StepGradients> ShardedStep::make_gradients(const NamedTensors& trained,
                                                           const std::string& model,
                                                           const ShardedForm& form) {
  if (form.stage < 2) {
    layout_ = shard_layout(sizes_of(trained), plan_, buckets_of(trained), group_.rank());
    return std::make_unique<LocalGradients>(trained, group_, buckets_of(trained),
                                            [this] { return refusal(); });
  }
  const GradientShare share = gradient_share(sizes_of(trained), plan_, group_.rank());
  layout_ = share.layout;
  const ScatterOptions options{.caps = form.caps,
                               .has_common_memory = parameters_.copies() == SharedParameters::Copies::ONE};
  return std::make_unique<ScatteredGradients>(trained, group_, plan_, share, options, model,
                                              [this] { return refusal(); });
}

std::optional<std::string> ShardedStep::refusal() const {
  if (stage_ == Stage::LOCAL) return std::nullopt;
  if (stage_ == Stage::AVERAGED)
    return "backward() after clip_grad_norm_() or unscale_() of this model and before its optimiser's "
           "step(): the gradients are averages by now, and this one is of this rank alone. Step first, or "
           "drop them by zero_grad()";
  if (stage_ == Stage::STEPPING) return "backward() within a step of the optimiser";
  return words_of_torn();
}

std::string ShardedStep::words_of_torn() const {
  const std::string what = count_.is_write ? "write_parameters() after step " : "step ";
  return str(
      what, count_.steps,
      " is torn: a rank failed while ranks wrote the parameters, so some values are new and others are "
      "not. Load a checkpoint into a new wrapper");
}

void ShardedStep::refuse_torn() const {
  if (stage_ == Stage::TORN) ZERO_WRAPPER.refuse(group_, words_of_torn());
}

// What fails while ranks may write leaves a torn step.
template <typename Body> void ShardedStep::guard(const Body& body) {
  try {
    body();
  } catch (...) {
    stage_ = Stage::TORN;
    parameters_.abandon();
    log(LogLevel::WARNING, str(ZERO_WRAPPER.on(group_), ": ", words_of_torn()));
    throw;
  }
}

void ShardedStep::fail(const std::string& what) {
  stage_ = Stage::TORN;
  parameters_.abandon();
  group_.abort(str(ZERO_WRAPPER.on(group_), ": the step of the optimiser failed: ", what));
}

// After it ranks write. Where it fails on one rank, marks tell whether another one of its copy may have
// begun. Where it is refused, it fails on all.
void ShardedStep::hold_meeting(const std::function<void()>& meeting) {
  ++count_.meetings;
  try {
    parameters_.meet(count_.meetings, meeting);
  } catch (...) {
    if (!meeting_.is_refused() && !parameters_.is_untouched(count_.meetings)) guard([] { throw; });
    parameters_.abandon();
    throw;
  }
}

void ShardedStep::begin(bool by_parts) {
  refuse_torn();
  parameters_.settle();
  fail_point("zero.before_meeting");
  group_.backend().check_peers();  // a step that cannot begin leaves no mark
  meet(by_parts && !parameters_.are_on_device());
  fail_point("zero.stepping");
}

void ShardedStep::meet(bool by_parts) {
  ++count_.steps;
  count_.is_write = false;
  if (stage_ == Stage::AVERAGED) {
    hold_meeting([&] { meeting_.hold(GradientMeeting::Reason::STEP, {}); });
    return by_parts ? take_factor_along() : apply_factor();
  }
  const std::vector<bool> used = gradients_->complete();
  // Averages that come by messages belong to the meeting. A rank that has its own may write to the machine's
  // copy, so a rank that waits for its own must not be past the meeting, whose marks tell that.
  hold_meeting([&] {
    met_ = meeting_.hold(GradientMeeting::Reason::STEP, used);
    if (met_.flats.empty()) finish_average();
  });
  if (met_.flats.empty()) return;
  if (!by_parts) return finish_average();
  for (std::size_t i = 0; i < layout_.pieces.size(); ++i) {
    parts_[i] = {.dtype = layout_.pieces[i].dtype, .rounded = parameters_.masters().copy_of(i)};
    for (const std::byte* flat : met_.flats[layout_.pieces[i].bucket])
      parts_[i].of_rank.push_back(flat + layout_.pieces[i].begin);
  }
  stage_ = Stage::STEPPING;
}

const optim::GradientParts* ShardedStep::parts(std::size_t parameter) const {
  return stage_ == Stage::STEPPING && met_.used[parameter] ? &parts_[parameter] : nullptr;
}

void ShardedStep::end() {
  fail_point("zero.before_end");
  guard([&] {
    if (stage_ != Stage::STEPPING) {
      parameters_.masters().round();
      if (steps_on_host()) parameters_.wait_for_copies();
    }
    if (parameters_.copies() == SharedParameters::Copies::ONE) meeting_.end();
    parameters_.collect();
  });
  drop();
}

void ShardedStep::average() {
  refuse_torn();
  parameters_.settle();
  if (stage_ == Stage::AVERAGED) {
    apply_factor();
    squares_.reset();  // GradScaler may have divided the averages since
    return;
  }
  const std::vector<bool> used = gradients_->complete();
  met_ = meeting_.hold(GradientMeeting::Reason::AVERAGE, used);
  finish_average();
}

// Parameters have no .grad from now on: what lies there is no rank's own any more.
void ShardedStep::finish_average() {
  const at::NoGradGuard no_grad;
  squares_.reset();
  if (!met_.flats.empty()) {
    average_in_place();
  } else if (gradients_->local() != nullptr) {
    average_by_messages();
  }
  take_averages();
  gradients_->drop();
  stage_ = Stage::AVERAGED;
}

// Of a master the average is widened: whoever divides or clips it loses nothing.
void ShardedStep::take_averages() {
  for (std::size_t i = 0; i < layout_.pieces.size(); ++i) {
    const at::Tensor& shard = parameters_.my_shard(i);
    if (!met_.used[i]) continue;
    shard.mutable_grad() = parameters_.masters().gradient_of(
        i, gradient_alias(gradients_->flat(layout_.pieces[i].bucket), shard.sizes(), {1},
                          layout_.pieces[i].begin / size_of(layout_.pieces[i].dtype)));
  }
  if (steps_on_host()) parameters_.wait_for_copies();
}

bool ShardedStep::steps_on_host() const {
  return parameters_.are_on_device() && parameters_.my_shard(0).is_cpu();
}

void ShardedStep::scale(double factor) { factor_ *= factor; }

void ShardedStep::apply_factor() {
  const at::NoGradGuard no_grad;
  const double factor = std::exchange(factor_, 1);
  for (std::size_t i = 0; i < layout_.pieces.size() && factor != 1; ++i) {
    at::Tensor& grad = parameters_.my_shard(i).mutable_grad();
    if (grad.defined()) grad.mul_(factor);
  }
}

// The optimiser multiplies as it goes. Of 16 bits it would keep more of the product than .grad can hold.
void ShardedStep::take_factor_along() {
  for (std::size_t i = 0; i < layout_.pieces.size(); ++i) {
    if (size_of(dtype_of(parameters_.my_shard(i).scalar_type())) < sizeof(float)) return apply_factor();
  }
  for (std::size_t i = 0; i < layout_.pieces.size(); ++i) {
    if (!met_.used[i]) continue;
    const at::Tensor average = std::exchange(parameters_.my_shard(i).mutable_grad(), at::Tensor());
    auto* const data = static_cast<std::byte*>(average.mutable_data_ptr());
    parts_[i] = {.of_rank = {data}, .factor = factor_, .rounded = parameters_.masters().copy_of(i)};
    met_.holders.emplace_back(data, [average](std::byte*) {});
  }
  factor_ = 1;
  stage_ = Stage::STEPPING;
}

template <typename Work> void ShardedStep::for_my_chunks(const Work& work) const {
  const std::vector<ShardChunk> chunks = chunks_of(layout_, met_.used);
  at::parallel_for(0, static_cast<std::int64_t>(chunks.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) work(chunks[i]);
  });
}

std::byte* ShardedStep::my_flat(std::size_t bucket) const {
  return static_cast<std::byte*>(gradients_->flat(bucket).mutable_data_ptr());
}

// Only this rank reads its parts, so they may become their average where they are.
void ShardedStep::average_in_place() {
  std::vector<double>& squares = squares_.emplace(layout_.chunks);
  for_my_chunks([&](const ShardChunk& chunk) {
    const ShardPiece& piece = layout_.pieces[chunk.piece];
    std::vector<const std::byte*> from;
    for (const std::byte* flat : met_.flats[piece.bucket]) from.push_back(flat + chunk.byte);
    const std::array<std::byte*, 1> to = {my_flat(piece.bucket) + chunk.byte};
    reduce(piece.dtype, ReduceOp::AVG, from, to, chunk.count);
    squares[chunk.number] = optim::step_kernels().square(piece.dtype, to[0], chunk.count);
  });
}

void ShardedStep::average_by_messages() {
  const Acting acting(Purpose::SHARDED_STEP);
  const BucketStore& store = *gradients_->local();
  for (std::size_t b = 0; b < store.buckets(); ++b) {
    std::vector<at::Tensor> parts;
    for (const BucketRange& range : layout_.ranges[b])
      parts.push_back(store.flat(b).narrow(0, static_cast<std::int64_t>(range.offset),
                                           static_cast<std::int64_t>(range.count)));
    reduce_scatter(parts[static_cast<std::size_t>(group_.rank())], parts, ReduceOp::AVG, group_);
  }
}

void ShardedStep::find_squares() {
  std::vector<double>& squares = squares_.emplace(layout_.chunks);
  if (!parameters_.my_shard(0).is_cpu()) return find_squares_on_device();
  for_my_chunks([&](const ShardChunk& chunk) {
    const ShardPiece& piece = layout_.pieces[chunk.piece];
    const at::Tensor& average = parameters_.my_shard(chunk.piece).grad();
    const std::size_t element = (chunk.byte - piece.begin) / size_of(piece.dtype);
    squares[chunk.number] = optim::step_kernels().square(
        dtype_of(average.scalar_type()),
        static_cast<const std::byte*>(average.const_data_ptr()) + element * average.element_size(),
        chunk.count);
  });
}

// One number for each part, in the place of its first chunk: what is asked for are sums over parameters.
void ShardedStep::find_squares_on_device() {
  std::vector<at::Tensor> averages;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < layout_.pieces.size(); ++i) {
    if (!met_.used[i] || layout_.pieces[i].count == 0) continue;
    averages.push_back(parameters_.my_shard(i).grad());
    places.push_back(layout_.pieces[i].first_chunk);
  }
  const std::vector<double> squares = optim::squares_of(averages);
  for (std::size_t i = 0; i < places.size(); ++i) (*squares_)[places[i]] = squares[i];
}

// A chunk that is another rank's adds zero to this rank's table, which is exact.
std::vector<double> ShardedStep::squares_of_all_ranks() {
  if (!squares_) find_squares();
  std::vector<double> table = *squares_;
  const Acting acting(Purpose::SHARDED_STEP);
  if (group_.size() > 1) comm::all_reduce(group_, std::span(table), ReduceOp::SUM).wait();
  return table;
}

double ShardedStep::square_norm() {
  const std::vector<double> table = squares_of_all_ranks();
  return std::accumulate(table.begin(), table.end(), 0.0);
}

std::vector<double> ShardedStep::square_norms() {
  const std::vector<double> table = squares_of_all_ranks();
  std::vector<std::size_t> elements(layout_.pieces.size());
  for (const ShardSpec& shard : plan_.shards) elements[shard.parameter] += shard.count;
  std::vector<double> norms;
  auto chunk = table.begin();
  for (const std::size_t count : elements) {  // a parameter begins with a chunk of its own
    const auto end =
        chunk + static_cast<std::ptrdiff_t>((count + optim::CHUNK_ELEMENTS - 1) / optim::CHUNK_ELEMENTS);
    norms.push_back(std::accumulate(chunk, end, 0.0));
    chunk = end;
  }
  return norms;
}

void ShardedStep::write(const std::function<void()>& write) {
  refuse_torn();
  parameters_.hold();
  group_.backend().check_peers();  // a write that cannot begin leaves no mark
  count_.is_write = true;
  hold_meeting([&] { comm::barrier(group_).wait(); });
  guard([&] { parameters_.write(write); });
}

void ShardedStep::drop() {
  for (std::size_t i = 0; i < layout_.pieces.size(); ++i) parameters_.my_shard(i).mutable_grad().reset();
  for (optim::GradientParts& parts : parts_) parts = {};
  factor_ = 1;
  met_ = {};
  gradients_->drop();
  if (stage_ != Stage::TORN) stage_ = Stage::LOCAL;
}

}  // namespace lockstep
