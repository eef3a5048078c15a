// Purpose: the part of the library for which a rank makes a call. It travels with the call to the place where
// ranks compare calls, so that errors, warnings and traces name it:
//
//   rank 0 called all_gather(uint8[64]) for a checksum, rank 1 called all_reduce(float32[20], avg) for the
//   gradients of a DistributedDataParallel
//
//   const Acting acting(Purpose::SYNC_BATCH_NORM_FORWARD, name);      // calls of this thread until the end
//                                                                     // of the scope
//   all_gather_into_tensor(all, own, group);
//
// Compared    Ranks must call for the same purpose and with the same mark, as they must with the same dtype.
//             A mark is a number that the calling part of the library chooses. It travels in place of a root,
//             if the verb has none.
// Not carried The name of the model or layer. Each rank adds its own to its own messages.
// Scopes      The innermost scope counts. A thread outside of any scope calls for the program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

enum class Purpose : std::uint8_t {
  PROGRAM,
  MODEL_COMPARISON,  // mark: comparison_mark()
  FIRST_WEIGHTS,
  BUFFERS,
  GRADIENTS,  // mark: forwards of this rank that an exception left behind
  STEP_TIMES,
  SYNC_BATCH_NORM_FORWARD,
  SYNC_BATCH_NORM_BACKWARD,
  OVERFLOWS,  // mark: the bits of the scale, a float
  CHECKSUM,
  MEAN,
  OBJECT,
  JOIN,
  ACCUMULATION,
  CHECKPOINT,
  STOP_SIGNALS,
  RANK_ZERO_FIRST,
  NEW_GROUP,
  SHARDED_STEP,  // mark: GradientMeeting::Reason
  TENSOR_PARALLEL,
  PIPELINE,
  CONTEXT_PARALLEL,
  GRADIENT_NORM,
};
inline constexpr int PURPOSE_COUNT = 23;

// One model lies over several ranks, which exchange what its layers make.
constexpr bool is_of_model_parallelism(Purpose purpose) {
  return purpose == Purpose::TENSOR_PARALLEL || purpose == Purpose::PIPELINE ||
         purpose == Purpose::CONTEXT_PARALLEL || purpose == Purpose::GRADIENT_NORM;
}

// "gradients", as files and programs name it. PROGRAM is "".
std::string_view name_of(Purpose purpose);
// "for the gradients of a DistributedDataParallel"; empty for the program.
std::string_view words_of(Purpose purpose);
// The mark in words, "after 1 forward() that an exception left"; empty where there is nothing to say.
std::string words_of_mark(Purpose purpose, std::int32_t mark);
// The mark of MODEL_COMPARISON for the wrapper with that name. The text of a disagreement then names the
// wrapper of each rank: "for the comparison of models by ShardedDataParallel". 0, without words, for an
// unknown name.
std::int32_t comparison_mark(std::string_view wrapper);

// The usual reason why a rank with one purpose meets a rank with the other, or waits in vain for it, and what
// to do: a sentence that begins with "; ". Empty if there is no usual reason. Pure.
std::string usual_cause(Purpose mine, std::int32_t my_mark, Purpose theirs, std::int32_t their_mark);
std::string usual_cause_of_absence(Purpose mine);

// The purpose of the calls that a thread makes.
struct ActingState {
  Purpose purpose = Purpose::PROGRAM;
  std::int32_t mark = 0;
  const std::string* name = nullptr;  // null if there is none; lives as long as the process
};

class Acting {
 public:
  explicit Acting(Purpose purpose, const std::string& name = {}, std::int32_t mark = 0);
  ~Acting() { here() = before_; }
  Acting(const Acting&) = delete;
  Acting& operator=(const Acting&) = delete;

  static const ActingState& current() { return here(); }

 private:
  static ActingState& here() {
    static thread_local ActingState state;
    return state;
  }

  const ActingState before_;
};

}  // namespace lockstep
