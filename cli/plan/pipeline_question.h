// `lockstep plan --pipeline`: its options as a shape and times, and the answer as text or JSON. Pure.
//
//   const PipelineQuestion question = pipeline_question({.pipeline = "1f1b", .stages = 4, .micro_batches =
//   8}); std::fputs(pipeline_text(question).c_str(), stdout);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/schedules/pipeline_timeline.h"

namespace lockstep::cli {

// The options as they were given.
struct PipelineWords {
  std::string pipeline;
  std::optional<std::int64_t> stages, micro_batches, virtual_stages, batch;
  std::optional<std::int64_t> layers;
  std::string times, transfer, recompute, parts;
};

struct PipelineQuestion {
  PipelineShape shape;
  PipelineTimes times;
  std::vector<std::int64_t> rows;  // of each micro-batch; empty if no batch was given
};

// UsageError for what is missing, too large or no number.
PipelineQuestion pipeline_question(const PipelineWords& words);

// The shape, the chart, and what each rank costs.
std::string pipeline_text(const PipelineQuestion& question);

// One object: time, bubble, and of each rank its peaks and the start and end of each action.
std::string pipeline_json(const PipelineQuestion& question);

}  // namespace lockstep::cli
