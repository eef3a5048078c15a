// pipeline_program: a pipeline schedule with its messages: what each rank computes, sends and receives, in
// one order. Pure, and the same on every rank.
//
//   const PipelineProgram program = pipeline_program(pipeline_schedule({.stages = 2, .micro_batches = 2}));
//   std::cout << to_text(program);       // rank 0  F0 f0>1 F1 f1>1 g0<1 B0 g1<1 B1
//                                        // rank 1  f0<0 F0 f1<0 B0 g0>0 F1 B1 g1>0
//
// A lower-case f is an activation, g a gradient: f0>1 is sent to rank 1, f0<0 is received from rank 0.
//
// Which       A FORWARD sends its output to the rank of the next part of the model, a BACKWARD or
//             BACKWARD_INPUT the gradient of its input to the rank of the previous part. Nothing travels
//             where one rank has both parts: with one stage alone, and at the turn of ZB_V.
// Order       All steps of all ranks have one common order, and each rank's list is taken from it. So any two
//             ranks have the messages between them in the same order on both sides, and messages need no
//             tags.
// Blocking    The program ends even if a send waits for its receive and nothing is buffered on the way:
//             consider the first step of the common order that has not been done. Its ranks have done all of
//             their steps before it, so they are at it, and it can be done.
//             Receives that stand directly before the action that uses them would not do: with 1F1B, rank r
//             would send an activation to rank r + 1, which sends it a gradient.
// Executor    Without blocking, a rank starts its sends and receives in this order, and waits for a value
//             before the action that uses it.
// Places      A rank may receive values some actions before it uses them. places[rank] is the largest number
//             of values that it has received and whose action has not ended.
// The common  order is that of pipeline_timeline with forwards, BACKWARD_INPUT and BACKWARD_WEIGHT of equal
// length      and transfers that take no time. A value is sent at the end of the action that computes it.
// Throws      InvalidArgument as pipeline_timeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/schedules/pipeline_schedule.h"

namespace LOCKSTEP_PUBLIC lockstep {

enum class PipelineMessageKind : std::uint8_t { ACTIVATION, GRADIENT };

struct PipelineMessage {
  PipelineMessageKind kind = PipelineMessageKind::ACTIVATION;
  int micro_batch = 0;
  int from_part = 0;  // of the model; PipelineShape says which rank and chunk it is
  int to_part = 0;
  bool operator==(const PipelineMessage&) const = default;
};

struct PipelineStep {
  enum class Kind : std::uint8_t { COMPUTE, SEND, RECEIVE };
  Kind kind = Kind::COMPUTE;
  PipelineAction action;    // of COMPUTE
  PipelineMessage message;  // of SEND and RECEIVE
};

struct PipelineProgram {
  PipelineShape shape;
  std::vector<std::vector<PipelineStep>> ranks;  // by rank, in order
  std::vector<int> places;                       // by rank
};

PipelineProgram pipeline_program(const PipelineSchedule& schedule);

// A line for each rank. With several chunks a message has the letter of the sender's chunk: f0b>1.
std::string to_text(const PipelineProgram& program);

}  // namespace lockstep
