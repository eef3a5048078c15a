// all_reduce, reduce, reduce_scatter: each combine gets the contributions of all ranks, unchanged.
#include <algorithm>

#include "lockstep/comm/algorithms/schedule.h"

namespace lockstep::algorithms {
namespace {

// Places of the ranks' contributions during a combine: this rank's own buffer, and one block of scratch for
// each other rank. There are two blocks if one is filled while the other is combined.
class Contributions {
 public:
  Contributions(const Shape& shape, std::size_t bytes) : shape_(shape), block_((bytes + 63) / 64 * 64) {}

  // `number` chooses the even or the odd blocks.
  Place of(int rank, const Place& own, std::size_t number = 0) const {
    if (rank == shape_.rank) return own;
    const int block = rank < shape_.rank ? rank : rank - 1;
    return {Area::SCRATCH, number % 2 * scratch_bytes() + block_ * static_cast<std::size_t>(block)};
  }
  Combine combine(const Place& own, const Place& output, std::size_t bytes, std::size_t number = 0) const {
    Combine all{{}, output, bytes};
    for (int r = 0; r < shape_.size; ++r) all.inputs.push_back(of(r, own, number));
    return all;
  }
  std::size_t scratch_bytes() const { return block_ * static_cast<std::size_t>(shape_.size - 1); }

 private:
  const Shape& shape_;
  const std::size_t block_;
};

std::size_t segments_of(std::size_t bytes, std::size_t segment) { return (bytes + segment - 1) / segment; }

Schedule all_to_all(const Shape& shape, std::size_t bytes) {
  const Contributions all(shape, bytes);
  Step step;
  for (int ahead = 1; ahead < shape.size; ++ahead) {
    const int peer = (shape.rank + ahead) % shape.size;
    step.sends.push_back({peer, 0, {Area::INPUT}, bytes, bytes});
    step.receives.push_back({peer, 0, all.of(peer, {}), bytes, bytes});
  }
  step.combines.push_back(all.combine({Area::INPUT}, {Area::OUTPUT}, bytes));
  return {{std::move(step)}, all.scratch_bytes()};
}

// Step k scatters segment k, combines segment k - 1 meanwhile and gathers segment k - 2. All steps but the
// first are early, so the connections never rest. Within a segment rank r combines part r.
Schedule combine_parts(const Shape& shape, std::size_t bytes) {
  const std::size_t segment = SEGMENT / 2 * static_cast<std::size_t>(shape.size);
  const std::size_t segments = segments_of(bytes, segment);
  const Contributions all(shape, slice_of(std::min(bytes, segment), shape.size, 0).bytes);
  const auto part = [&](std::size_t k, int rank) {
    const std::size_t begin = k * segment;
    const Slice inside = slice_of(std::min(segment, bytes - begin), shape.size, rank);
    return Slice{begin + inside.offset, inside.bytes};
  };
  Schedule schedule{std::vector<Step>(segments + 2),
                    std::min<std::size_t>(segments, 2) * all.scratch_bytes()};
  for (std::size_t k = 1; k < schedule.steps.size(); ++k) schedule.steps[k].early = true;
  for (std::size_t k = 0; k < segments; ++k) {
    const auto label = static_cast<std::uint32_t>(2 * k);
    const Slice mine = part(k, shape.rank);
    Step& scatter = schedule.steps[k];
    Step& gather = schedule.steps[k + 2];
    for (int ahead = 1; ahead < shape.size; ++ahead) {
      const int peer = (shape.rank + ahead) % shape.size;
      const Slice theirs = part(k, peer);
      if (theirs.bytes > 0) {
        scatter.sends.push_back({peer, label, {Area::INPUT, theirs.offset}, theirs.bytes, bytes});
        gather.receives.push_back({peer, label + 1, {Area::OUTPUT, theirs.offset}, theirs.bytes, bytes});
      }
      if (mine.bytes > 0) {
        scatter.receives.push_back({peer, label, all.of(peer, {}, k), mine.bytes, bytes});
        gather.sends.push_back({peer, label + 1, {Area::OUTPUT, mine.offset}, mine.bytes, bytes});
      }
    }
    if (mine.bytes > 0)
      schedule.steps[k + 1].meanwhile.push_back(
          all.combine({Area::INPUT, mine.offset}, {Area::OUTPUT, mine.offset}, mine.bytes, k));
  }
  return schedule;
}

}  // namespace

Schedule all_reduce(const Shape& shape) {
  const std::size_t bytes = shape.count * shape.element;
  // Two ranks send the same number of bytes in both ways.
  const std::size_t at_once = shape.size == 2 ? SEGMENT : SMALL;
  return bytes <= at_once || shape.size == 1 ? all_to_all(shape, bytes) : combine_parts(shape, bytes);
}

Schedule reduce(const Shape& shape) {
  const std::size_t bytes = shape.count * shape.element;
  const Contributions all(shape, std::min(bytes, SEGMENT));
  Schedule schedule{std::vector<Step>(std::max<std::size_t>(1, segments_of(bytes, SEGMENT))), 0};
  if (shape.rank == shape.root) schedule.scratch_bytes = all.scratch_bytes();
  for (std::size_t k = 0; k < schedule.steps.size(); ++k) {
    Step& step = schedule.steps[k];
    const auto label = static_cast<std::uint32_t>(k);
    const std::size_t begin = k * SEGMENT;
    const std::size_t length = std::min(SEGMENT, bytes - begin);
    if (shape.rank != shape.root) {
      step.sends.push_back({shape.root, label, {Area::INPUT, begin}, length, bytes});
      continue;
    }
    for (int peer = 0; peer < shape.size; ++peer) {
      if (peer != shape.rank) step.receives.push_back({peer, label, all.of(peer, {}), length, bytes});
    }
    step.combines.push_back(all.combine({Area::INPUT, begin}, {Area::OUTPUT, begin}, length));
  }
  return schedule;
}

// Outputs may differ in size from rank to rank, so ranks take different numbers of steps. Labels count
// segments.
Schedule reduce_scatter(const Shape& shape) {
  const auto at = [](int rank) { return static_cast<std::size_t>(rank); };
  const std::size_t mine = shape.count * shape.element;
  const Contributions all(shape, std::min(mine, SEGMENT));
  const std::size_t longest = *std::max_element(shape.inputs.begin(), shape.inputs.end());
  const auto steps = [](std::size_t bytes) { return std::max<std::size_t>(1, segments_of(bytes, SEGMENT)); };
  Schedule schedule{std::vector<Step>(steps(std::max(longest, mine))), all.scratch_bytes()};
  for (std::size_t k = 0; k < schedule.steps.size(); ++k) {
    Step& step = schedule.steps[k];
    const auto label = static_cast<std::uint32_t>(k);
    const std::size_t begin = k * SEGMENT;
    for (int ahead = 1; ahead < shape.size; ++ahead) {
      const int peer = (shape.rank + ahead) % shape.size;
      const std::size_t theirs = shape.inputs[at(peer)];
      if (k < steps(theirs))
        step.sends.push_back(
            {peer, label, {Area::INPUTS, begin, peer}, std::min(SEGMENT, theirs - begin), theirs});
      if (k < steps(mine))
        step.receives.push_back({peer, label, all.of(peer, {}), std::min(SEGMENT, mine - begin), mine});
    }
    if (k < steps(mine)) {
      step.combines.push_back(all.combine({Area::INPUTS, begin, shape.rank}, {Area::OUTPUT, begin},
                                          std::min(SEGMENT, mine - begin)));
    }
  }
  return schedule;
}

}  // namespace lockstep::algorithms
