#include "lockstep/comm/backends/nccl/levels.h"

#include <algorithm>

#include "lockstep/base/str.h"

namespace lockstep::nccl {
namespace {

using algorithms::Nodes;
using Kind = Step::Kind;

// One all_reduce in two levels.
class TwoLevels {
 public:
  TwoLevels(const Step& whole, std::size_t element, std::size_t local, std::size_t locals,
            std::size_t segment_bytes)
      : whole_(whole), element_(element), local_(local), locals_(locals), each_(whole.count / locals) {
    constexpr std::size_t ALIGNED = 64;  // in elements: parts begin as aligned as the whole buffer does
    const std::size_t part = segment_bytes / element_ / locals_;
    part_ = std::max<std::size_t>(1, (part + ALIGNED - 1) / ALIGNED) * ALIGNED;
  }

  std::vector<Stage> make() {
    const std::size_t segments = (each_ + part_ - 1) / part_;
    for (std::size_t s = 0; s < segments; ++s) {
      add(Level::NODE, s, Kind::REDUCE_SCATTER, input(s), mine(s));
      add(Level::ACROSS, s, Kind::ALL_REDUCE, mine(s), mine(s));
      if (s > 0) add(Level::NODE, s - 1, Kind::ALL_GATHER, mine(s - 1), output(s - 1));
    }
    if (segments > 0)
      add(Level::NODE, segments - 1, Kind::ALL_GATHER, mine(segments - 1), output(segments - 1));
    if (const std::size_t rest = whole_.count % locals_; rest > 0) {
      Step step = whole_;
      step.input = input_at(whole_.count - rest);
      step.output = output_at(whole_.count - rest);
      step.count = rest;
      stages_.push_back({Level::ALL, segments, {step}});
    }
    return std::move(stages_);
  }

 private:
  void add(Level level, std::size_t segment, Kind kind, const void* input, void* output) {
    Step step = whole_;
    step.kind = kind;
    step.input = input;
    step.output = output;
    step.count = count(segment);
    stages_.push_back({level, segment, {step}});
  }
  // Number of elements of a rank in a segment, the same for all ranks.
  std::size_t count(std::size_t segment) const { return std::min(part_, each_ - segment * part_); }
  const std::byte* input_at(std::size_t element) const {
    return static_cast<const std::byte*>(whole_.input) + element * element_;
  }
  std::byte* output_at(std::size_t element) const {
    return static_cast<std::byte*>(whole_.output) + element * element_;
  }
  std::size_t begin(std::size_t segment) const { return segment * part_ * locals_; }
  const std::byte* input(std::size_t segment) const { return input_at(begin(segment)); }
  std::byte* output(std::size_t segment) const { return output_at(begin(segment)); }
  // Place of this rank's part, where NCCL needs to copy nothing.
  std::byte* mine(std::size_t segment) const { return output_at(begin(segment) + local_ * count(segment)); }

  const Step whole_;
  const std::size_t element_;  // in bytes
  const std::size_t local_;
  const std::size_t locals_;
  const std::size_t each_;  // number of elements of a rank in all segments
  std::size_t part_ = 0;    // number of elements of a rank in each segment but the last
  std::vector<Stage> stages_;
};

const char* name_of(Level level) {
  switch (level) {
    case Level::ALL: return "all   ";
    case Level::NODE: return "node  ";
    case Level::ACROSS: return "across";
  }
  return "";
}

}  // namespace

std::optional<Grid> grid_of(const Nodes& nodes, int rank) {
  const std::size_t locals = algorithms::smallest_node(nodes);
  const bool is_even =
      std::all_of(nodes.begin(), nodes.end(), [&](const auto& node) { return node.size() == locals; });
  if (nodes.size() < 2 || locals < 2 || !is_even) return std::nullopt;
  const algorithms::Home home = algorithms::home_of(nodes, rank);
  Grid grid;
  grid.node = nodes[home.node];
  for (const auto& node : nodes) grid.across.push_back(node[home.local]);
  return grid;
}

std::vector<Stage> stages_of(const Request& request, int rank, int size, const std::optional<Grid>& grid,
                             std::size_t segment_bytes) {
  std::vector<Step> steps = steps_of(request, rank, size);
  if (steps.empty()) return {};
  if (!grid || request.verb != Verb::ALL_REDUCE) return {{Level::ALL, 0, std::move(steps)}};
  const auto local = std::find(grid->node.begin(), grid->node.end(), rank) - grid->node.begin();
  const Step& whole = steps.front();
  const std::size_t element =
      request.count * size_of(request.dtype) / whole.count;  // a complex number counts as two
  return TwoLevels(whole, element, static_cast<std::size_t>(local), grid->node.size(), segment_bytes).make();
}

std::string to_text(const std::vector<Stage>& stages) {
  std::string text;
  for (const Stage& stage : stages) {
    for (const Step& step : stage.steps)
      text += str("segment ", stage.segment, "  ", name_of(stage.level), "  ", name_of(step.kind), " ",
                  step.count, "\n");
  }
  return text;
}

}  // namespace lockstep::nccl
