#include "lockstep/comm/purpose.h"

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <set>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// The names are kept for good. A program has as many as it has models and layers.
const std::string* kept(const std::string& name) {
  if (name.empty()) return nullptr;
  static std::mutex mutex;
  static auto* const names = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return &*names->insert(name).first;
}

float scale_of(std::int32_t mark) { return std::bit_cast<float>(mark); }

bool is_of_a_loop(Purpose purpose) {
  return purpose == Purpose::BUFFERS || purpose == Purpose::GRADIENTS ||
         purpose == Purpose::SYNC_BATCH_NORM_FORWARD || purpose == Purpose::SYNC_BATCH_NORM_BACKWARD ||
         purpose == Purpose::OVERFLOWS || purpose == Purpose::JOIN || purpose == Purpose::ACCUMULATION ||
         purpose == Purpose::STOP_SIGNALS || purpose == Purpose::SHARDED_STEP;
}

bool is_of_batch_norm(Purpose purpose) {
  return purpose == Purpose::SYNC_BATCH_NORM_FORWARD || purpose == Purpose::SYNC_BATCH_NORM_BACKWARD;
}

// Their places are marks, which travel. The first one is the mark of every other caller.
constexpr std::array<std::string_view, 5> WRAPPERS = {"", "DistributedDataParallel", "ShardedDataParallel",
                                                      "ZeroRedundancyOptimizer", "virtual_ranks()"};

// Of SHARDED_STEP: this mark and those above it are units of parameters (GradientMeeting::Reason::UNITS).
constexpr std::int32_t FIRST_UNIT = 16;

bool is_read(Purpose purpose, std::int32_t mark) {
  return purpose == Purpose::SHARDED_STEP && mark >= FIRST_UNIT;
}

constexpr std::string_view ALONE =
    "a forward in training mode on one rank alone (evaluate after eval(), under torch::NoGradGuard)";

constexpr std::string_view BY_ALL =
    "; usually save_checkpoint() or load_checkpoint() was called on one rank alone: every rank calls them, "
    "and "
    "each writes its part";

constexpr std::string_view MODEL_PARALLEL =
    "; the ranks that have one model together take the same batches and call the same things: usually their "
    "data differ (a DistributedSampler is given the rank and size of the data axis, not of all ranks), their "
    "loops have different lengths, or one of them ran a forward or a step alone";

constexpr std::string_view READS_ALONE =
    ", or one rank alone read parameters of a ShardedDataParallel in stage 3, as for an evaluation: that is "
    "for all ranks to do";

std::string cause_of_places(bool batch_norm) {
  return str(
      "; usually the ranks are at different places of their loops: their inputs differ in length (use ",
      batch_norm ? "dist::join with throw_on_early_termination, since no rank can stand in for another in "
                   "SyncBatchNorm"
                 : "dist::join",
      ", or a DistributedSampler, which gives all ranks the same number), or there was ", ALONE);
}

}  // namespace

std::string_view name_of(Purpose purpose) {
  constexpr std::array<std::string_view, PURPOSE_COUNT> NAMES = {"",
                                                                 "model_comparison",
                                                                 "first_weights",
                                                                 "buffers",
                                                                 "gradients",
                                                                 "step_times",
                                                                 "sync_batch_norm_forward",
                                                                 "sync_batch_norm_backward",
                                                                 "overflows",
                                                                 "checksum",
                                                                 "mean",
                                                                 "object",
                                                                 "join",
                                                                 "accumulation",
                                                                 "checkpoint",
                                                                 "stop_signals",
                                                                 "rank_zero_first",
                                                                 "new_group",
                                                                 "sharded_step",
                                                                 "tensor_parallel",
                                                                 "pipeline",
                                                                 "context_parallel",
                                                                 "gradient_norm"};
  return NAMES.at(static_cast<std::size_t>(purpose));
}

std::string_view words_of(Purpose purpose) {
  constexpr std::array<std::string_view, PURPOSE_COUNT> WORDS = {
      "",
      "for the comparison of models",
      "for the first weights of a wrapped model",
      "for the buffers of a wrapped model",
      "for the gradients of a DistributedDataParallel",
      "for the step times of a DistributedDataParallel",
      "for the forward of a SyncBatchNorm",
      "for the backward of a SyncBatchNorm",
      "for the overflows of a GradScaler",
      "for a checksum",
      "for a mean over ranks",
      "for an object",
      "for a Join",
      "for gradient accumulation",
      "for a checkpoint",
      "for StopSignals",
      "for rank_zero_first",
      "for a new group",
      "for the step of a ShardedDataParallel",
      "for a tensor-parallel layer",
      "for a Pipeline",
      "for ring attention",
      "for the norm of a model's gradients"};
  return WORDS.at(static_cast<std::size_t>(purpose));
}

std::string words_of_mark(Purpose purpose, std::int32_t mark) {
  if (purpose == Purpose::MODEL_COMPARISON && mark > 0 && mark < static_cast<int>(WRAPPERS.size()))
    return str("by ", WRAPPERS.at(static_cast<std::size_t>(mark)));
  if (purpose == Purpose::OVERFLOWS) return str("with the scale ", scale_of(mark));
  if (purpose == Purpose::GRADIENTS && mark != 0)
    return str("after ", mark, mark == 1 ? " forward()" : " forwards", " that an exception left");
  if (is_read(purpose, mark)) return str("to gather unit ", mark - FIRST_UNIT, " of its parameters");
  return {};
}

std::int32_t comparison_mark(std::string_view wrapper) {
  const auto* const found = std::find(WRAPPERS.begin(), WRAPPERS.end(), wrapper);
  return found == WRAPPERS.end() ? 0 : static_cast<std::int32_t>(found - WRAPPERS.begin());
}

std::string usual_cause(Purpose mine, std::int32_t my_mark, Purpose theirs, std::int32_t their_mark) {
  if (mine == theirs && my_mark != their_mark) {
    if (mine == Purpose::OVERFLOWS) {
      return str("; the scales of the ranks differ (", scale_of(my_mark), " and ", scale_of(their_mark),
                 "): call load_state_dict(), update(scale) and the options' init_scale alike on all ranks");
    }
    if (mine == Purpose::GRADIENTS) {
      return str("; an exception ended a step on one rank alone (", my_mark, " and ", their_mark,
                 " forwards were left by one), so this backward would average different steps: end the loop "
                 "on that rank, skip the step on all ranks, or run a forward that may be tried again under "
                 "no_sync()");
    }
    if (mine == Purpose::SHARDED_STEP)
      return "; the ranks are at different places of their loops: all run as many backward() before a step "
             "(from stage 2 on), read the same parameters in the same order (in stage 3, also in an "
             "evaluation), and call clip_grad_norm_(), unscale_() and step() in the same order";
  }
  if (mine != theirs && (mine == Purpose::CHECKPOINT || theirs == Purpose::CHECKPOINT))
    return std::string(BY_ALL);
  if (is_of_model_parallelism(mine) || is_of_model_parallelism(theirs)) return std::string(MODEL_PARALLEL);
  if (mine == theirs || !(is_of_a_loop(mine) || is_of_a_loop(theirs))) return {};
  const std::string cause = cause_of_places(is_of_batch_norm(mine) || is_of_batch_norm(theirs));
  return is_read(mine, my_mark) || is_read(theirs, their_mark) ? str(cause, READS_ALONE) : cause;
}

std::string usual_cause_of_absence(Purpose mine) {
  if (mine == Purpose::CHECKPOINT) return std::string(BY_ALL);
  if (mine == Purpose::NEW_GROUP)
    return "; a new group is made by every rank of this one, or, with use_local_synchronization, by every "
           "one of "
           "its members, in the same order";
  if (is_of_model_parallelism(mine)) return std::string(MODEL_PARALLEL);
  if (mine == Purpose::SHARDED_STEP) return str(cause_of_places(/*batch_norm=*/false), READS_ALONE);
  return is_of_a_loop(mine) ? cause_of_places(is_of_batch_norm(mine)) : std::string();
}

Acting::Acting(Purpose purpose, const std::string& name, std::int32_t mark) : before_(here()) {
  here() = {.purpose = purpose, .mark = mark, .name = kept(name)};
}

}  // namespace lockstep
