// all_gather, gather, scatter, all_to_all: each contribution goes straight from its rank to its destination,
// in one step. Empty contributions travel as well, so that the receiver can check that it expects an empty
// one.
#include "lockstep/comm/algorithms/schedule.h"

namespace lockstep::algorithms {
namespace {

enum class Part {
  NONE,
  ONE,
  LIST
};  // the buffers that a rank gives or gets: none, its single buffer, or one per rank

struct Roles {
  Part gives = Part::NONE;
  Part gets = Part::NONE;
};

Roles roles_of(const Shape& shape, int rank) {
  const bool root = rank == shape.root;
  switch (shape.verb) {
    case Verb::ALL_GATHER: return {Part::ONE, Part::LIST};
    case Verb::GATHER: return {Part::ONE, root ? Part::LIST : Part::NONE};
    case Verb::SCATTER: return {root ? Part::LIST : Part::NONE, Part::ONE};
    default: return {Part::LIST, Part::LIST};
  }
}

}  // namespace

Schedule exchange(const Shape& shape) {
  const Roles mine = roles_of(shape, shape.rank);
  const auto at = [](int rank) { return static_cast<std::size_t>(rank); };
  const std::size_t single = shape.count * shape.element;
  const auto from = [&](int peer) {
    return mine.gives == Part::ONE ? Place{Area::INPUT} : Place{Area::INPUTS, 0, peer};
  };
  const auto to = [&](int peer) {
    return mine.gets == Part::ONE ? Place{Area::OUTPUT} : Place{Area::OUTPUTS, 0, peer};
  };
  const auto given = [&](int peer) { return mine.gives == Part::ONE ? single : shape.inputs[at(peer)]; };
  const auto got = [&](int peer) { return mine.gets == Part::ONE ? single : shape.outputs[at(peer)]; };
  Step step;
  if (mine.gives != Part::NONE && mine.gets != Part::NONE) {
    step.copies.push_back({from(shape.rank), to(shape.rank), given(shape.rank)});
  }
  // each rank begins with the next one, so that not all send to rank 0 first
  for (int ahead = 1; ahead < shape.size; ++ahead) {
    const int peer = (shape.rank + ahead) % shape.size;
    const Roles theirs = roles_of(shape, peer);
    if (mine.gives != Part::NONE && theirs.gets != Part::NONE)
      step.sends.push_back({peer, 0, from(peer), given(peer), given(peer)});
    if (mine.gets != Part::NONE && theirs.gives != Part::NONE)
      step.receives.push_back({peer, 0, to(peer), got(peer), got(peer)});
  }
  return {{std::move(step)}, 0};
}

}  // namespace lockstep::algorithms
