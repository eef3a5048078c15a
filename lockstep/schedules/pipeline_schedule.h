// pipeline_schedule: what each rank of a pipeline computes, and in which order, as a table. Pure: a shape in,
// a table out. The table is complete before anything runs, and it is the same on every rank.
//
//   const PipelineSchedule schedule = pipeline_schedule(
//       {.kind = PipelineScheduleKind::ONE_F_ONE_B, .stages = 2, .micro_batches = 3});
//   std::cout << to_text(schedule);      // 1f1b: 2 stages, 3 micro-batches
//                                        // rank 0  F0 F1 B0 F2 B1 B2
//                                        // rank 1  F0 B0 F1 B1 F2 B2
//
// p is the number of stages, which is the number of ranks. m is the number of micro-batches, v the number of
// model chunks of each rank. The model is cut into p v parts; part c p + r is chunk c of rank r, except with
// ZB_V (part_of).
//
//   GPIPE         all forwards, then all backwards, the last micro-batch first.
//   ONE_F_ONE_B   p - r - 1 forwards on rank r, then one forward and one backward in turn. A rank keeps the
//                 activations of at most p micro-batches, whatever m is.
//      v > 1      interleaved 1F1B in Megatron's order: micro-batches go through a rank's chunks in groups,
//                 after 2 (p - r - 1) + (v - 1) g forwards of single chunks. g is the size of a group. If p
//                 divides m, every group has p micro-batches. Otherwise there are m / p groups, rounded down
//                 and at least one, and their sizes differ by at most 1. Megatron refuses these m.
//   ZB_H1         1F1B whose backward is two actions. BACKWARD_INPUT computes the gradient that the previous
//                 stage waits for. BACKWARD_WEIGHT computes the gradients of the parameters, which nobody
//                 waits for. It comes r micro-batches later on rank r, and fills the bubble at the end. The
//                 first stage has nobody to send a gradient to, so its BACKWARD is whole.
//   ZB_V          the same split, where it shortens the step, with two chunks a rank that lie like a V: rank
//                 r has parts r and 2 p - 1 - r, so the last rank turns round by itself, and the first one
//                 has both ends of the model. From 2 p - 1 micro-batches on, a rank waits for (p - 1) F / 2
//                 alone, and keeps as much as the first rank of 1F1B. With fewer micro-batches, or other
//                 `work`, the order is computed from these.
//
// Work        what parts and actions of the model cost. A rank waits first of all for the forwards of the
//             parts before its own. With ZB_V these can be small, because their ranks have the parts at the
//             end as well: two stages with parts of 1, 2, 2 and 3 layers wait half as long as with parts of
//             2. For that a rank keeps up to 3 p parts of mean size instead of 2 p. balance_pipeline() of
//             pipeline_balance.h finds such a cut. The order of the other schedules depends on no work.
// Recompute   RECOMPUTE is a second forward directly before the backward. Until then only the inputs of that
//             micro-batch are kept. EXCEPT_LAST keeps the activations of the last micro-batch, as torchgpipe
//             does: with GPIPE, its backward follows its forward.
// Any m       m < p is allowed: a pipeline that never fills. micro_batches.h cuts a batch that m does not
//             divide.
// Throws      InvalidArgument: a number below 1; v > 1 with GPIPE or ZB_H1; v other than 2 with ZB_V;
//             work with sizes of another number of parts, that are negative, not finite or all 0, or with a
//             forward that is not above 0.
// See also    pipeline_messages.h: sends and receives. pipeline_timeline.h: times, bubble, peak memory.
// Source      Huang et al., "GPipe", 2019, arXiv 1811.06965; Narayanan et al., "Efficient Large-Scale
//             Language Model Training on GPU Clusters Using Megatron-LM", 2021, arXiv 2104.04473; Qi et al.,
//             "Zero Bubble Pipeline Parallelism", 2024, arXiv 2401.10241, section 3 (ZB_H1) and 6 (ZB_V).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

enum class PipelineScheduleKind : std::uint8_t { GPIPE, ONE_F_ONE_B, ZB_H1, ZB_V };

// "gpipe", "1f1b", "zb-h1", "zb-v".
std::string_view name_of(PipelineScheduleKind kind);

enum class RecomputeMode : std::uint8_t { NEVER, EXCEPT_LAST, ALWAYS };

// "never", "except_last", "always".
std::string_view name_of(RecomputeMode mode);

enum class PipelineActionKind : std::uint8_t {
  FORWARD,          // F
  RECOMPUTE,        // R: the forward again, from the inputs that were kept
  BACKWARD,         // B: the gradients of inputs and parameters
  BACKWARD_INPUT,   // I: the gradients of inputs alone
  BACKWARD_WEIGHT,  // W: the gradients of parameters alone
};

struct PipelineAction {
  PipelineActionKind kind = PipelineActionKind::FORWARD;
  int micro_batch = 0;
  int chunk = 0;  // of this rank's model chunks
  bool operator==(const PipelineAction&) const = default;
};

// What the model costs, in any unit.
struct PipelineWork {
  std::vector<double> part_sizes = {};  // by part of the model; empty: all the same
  // Of a part of mean size: its forward, the gradients of its inputs, those of its parameters.
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;

  double size_of(int part) const;  // as a multiple of the mean size
};

struct PipelineShape {
  PipelineScheduleKind kind = PipelineScheduleKind::ONE_F_ONE_B;
  int stages = 1;          // p
  int micro_batches = 1;   // m
  int virtual_stages = 1;  // v
  RecomputeMode recompute = RecomputeMode::NEVER;
  PipelineWork work = {};

  int parts() const { return stages * virtual_stages; }  // of the model
  int part_of(int rank, int chunk) const {
    return turns_round(chunk) ? parts() - 1 - rank : chunk * stages + rank;
  }
  int rank_of(int part) const { return turns_round(chunk_of(part)) ? parts() - 1 - part : part % stages; }
  int chunk_of(int part) const { return part / stages; }
  // Whether the chunk's parts go from the last rank to the first.
  bool turns_round(int chunk) const { return kind == PipelineScheduleKind::ZB_V && chunk == 1; }
};

using PipelineActions = std::vector<PipelineAction>;

struct PipelineSchedule {
  PipelineShape shape;
  std::vector<PipelineActions> ranks;  // by rank, in the order in which the rank computes
};

PipelineSchedule pipeline_schedule(const PipelineShape& shape);

// "F3"; with_chunk: "F3b" for chunk 1.
std::string label_of(const PipelineAction& action, bool with_chunk);

// "1f1b: 4 stages, 8 micro-batches, 2 chunks a rank, recompute always".
std::string to_text(const PipelineShape& shape);
// The shape, and a line of labels for each rank.
std::string to_text(const PipelineSchedule& schedule);

}  // namespace lockstep
