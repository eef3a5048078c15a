// barrier and broadcast: one rank's data for all ranks.
#include "lockstep/comm/algorithms/schedule.h"

namespace lockstep::algorithms {

// Dissemination (Hensgen, Finkel, Manber 1988): after step k a rank has heard, directly or not, of the
// 2^(k+1) - 1 ranks before it.
Schedule barrier(const Shape& shape) {
  Schedule schedule;
  std::uint32_t label = 0;
  for (int distance = 1; distance < shape.size; distance *= 2) {
    Step step;
    step.sends.push_back({(shape.rank + distance) % shape.size, label, {}, 0, 0});
    step.receives.push_back({(shape.rank + shape.size - distance) % shape.size, label, {}, 0, 0});
    schedule.steps.push_back(std::move(step));
    ++label;
  }
  return schedule;
}

namespace {

// Ranks are counted from the root. `distance` becomes the power of two by which a rank is behind its parent.
Schedule binomial_tree(const Shape& shape, std::size_t bytes) {
  Schedule schedule;
  const int place = (shape.rank - shape.root + shape.size) % shape.size;
  const auto rank_at = [&](int other) { return (other + shape.root) % shape.size; };
  int distance = 1;
  while (distance < shape.size && (place & distance) == 0) distance *= 2;
  if (place != 0) {
    Step receive;
    receive.receives.push_back({rank_at(place - distance), 0, {Area::OUTPUT}, bytes, bytes});
    schedule.steps.push_back(std::move(receive));
  }
  Step forward;
  const Area from = place == 0 ? Area::INPUT : Area::OUTPUT;
  for (int child = distance / 2; child > 0; child /= 2) {
    if (place + child < shape.size)
      forward.sends.push_back({rank_at(place + child), 0, {from}, bytes, bytes});
  }
  if (!forward.sends.empty()) schedule.steps.push_back(std::move(forward));
  return schedule;
}

// The root cuts the buffer into one part for each other rank. These ranks pass their parts on to each other.
// The root sends each byte once instead of log2(size) times.
Schedule scatter_and_gather(const Shape& shape, std::size_t bytes) {
  Schedule schedule;
  const int place = (shape.rank - shape.root + shape.size) % shape.size;
  const auto rank_at = [&](int other) { return (other + shape.root) % shape.size; };
  const auto part = [&](int other) { return slice_of(bytes, shape.size - 1, other - 1); };
  const auto transfer = [&](int peer, std::uint32_t label, Area area, Slice slice) {
    return Transfer{rank_at(peer), label, {area, slice.offset}, slice.bytes, bytes};
  };
  Step scatter;
  Step gather;
  for (int other = 1; other < shape.size; ++other) {
    if (part(other).bytes == 0) continue;
    if (place == 0) scatter.sends.push_back(transfer(other, 0, Area::INPUT, part(other)));
    if (place == other) scatter.receives.push_back(transfer(0, 0, Area::OUTPUT, part(other)));
    if (place != 0 && place != other)
      gather.receives.push_back(transfer(other, 1, Area::OUTPUT, part(other)));
  }
  for (int other = 1; other < shape.size && place != 0 && part(place).bytes > 0; ++other) {
    if (other != place) gather.sends.push_back(transfer(other, 1, Area::OUTPUT, part(place)));
  }
  schedule.steps.push_back(std::move(scatter));
  if (place != 0) schedule.steps.push_back(std::move(gather));
  return schedule;
}

}  // namespace

Schedule broadcast(const Shape& shape) {
  const std::size_t bytes = shape.count * shape.element;
  if (shape.size == 1) return {};
  return bytes <= SMALL ? binomial_tree(shape, bytes) : scatter_and_gather(shape, bytes);
}

}  // namespace lockstep::algorithms
