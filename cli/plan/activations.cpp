#include "cli/plan/activations.h"

namespace lockstep::cli {

std::string_view name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::NONE: return "none";
    case Recompute::SELECTIVE: return "selective";
    case Recompute::FULL: return "full";
  }
  return "";
}

double activation_bytes(const TransformerShape& shape, Recompute recompute, double element) {
  const double tokens = static_cast<double>(shape.sequence) * static_cast<double>(shape.micro_batch);
  const double hidden = tokens * static_cast<double>(shape.hidden);  // elements of a layer's input
  const double scores = tokens * static_cast<double>(shape.sequence) * static_cast<double>(shape.heads);
  const double linear = (16 * element + 2) * hidden;
  const double attention = (2 * element + 1) * scores;
  const double ends = shape.vocabulary == 0
                          ? 0
                          : (1 + 2 * element) * hidden + 4 * tokens * static_cast<double>(shape.vocabulary);
  const auto layers = static_cast<double>(shape.layers);
  switch (recompute) {
    case Recompute::NONE: return layers * (linear + attention) + ends;
    case Recompute::SELECTIVE: return layers * linear + attention + ends;
    case Recompute::FULL: return layers * element * hidden + linear + attention + ends;
  }
  return 0;
}

}  // namespace lockstep::cli
