// Slices splits work on blocks into pieces. Any rank may do any piece once all ranks have posted.
//
//   const SlicePlan plan = slice_plan(bytes, ranks);          // the same table on every rank
//   Slices slices(context, sequence);
//   if (slices.work(plan, 4, [&](std::size_t begin, std::size_t bytes) { ... })) everything_is_done();
//
// Each rank has a region of its own. No other rank writes to that region's line while its owner works there.
// A rank without work left in its region helps with the next region. A late or busy rank therefore delays no
// other rank, and ranks that arrive together rarely contend.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/comm/backends/shared/context.h"

namespace lockstep::shared {

struct SlicePlan {
  std::size_t total = 0;   // in bytes
  std::size_t region = 0;  // bytes of one rank's region; the last regions may be shorter or empty
  std::size_t slice = 0;

  std::size_t region_begin(int rank) const;
  std::size_t slices_of(int rank) const;
};

// Slices are small enough that ranks share the work evenly, and large enough that a claim costs little.
SlicePlan slice_plan(std::size_t total, int ranks);

class Slices {
 public:
  Slices(Context& context, std::uint64_t sequence);

  // Does up to `most` slices. Returns true when all slices are done, no matter by which rank. `work(begin,
  // bytes)` does one slice.
  template <typename Work> bool work(const SlicePlan& plan, std::size_t most, Work work) {
    begin_claiming();
    for (int step = 0; step < context_.size() && most > 0; ++step) {
      const int region = (context_.rank() + step) % context_.size();
      for (std::size_t slice = 0; most > 0 && claim(plan, region, slice); --most) {
        const std::size_t begin = plan.region_begin(region) + slice * plan.slice;
        const std::size_t end = std::min(plan.region_begin(region + 1), begin + plan.slice);
        work(begin, end - begin);
        if (!note_done()) return false;
      }
    }
    end_claiming();
    return all_done(plan);
  }

 private:
  void begin_claiming();
  bool claim(const SlicePlan& plan, int region, std::size_t& slice);
  bool note_done();  // false if the slice does not count, because the group failed
  void end_claiming();
  bool all_done(const SlicePlan& plan) const;

  Context& context_;
  const std::uint64_t sequence_;
  std::atomic<std::uint64_t>& reducing_;
  std::atomic<std::uint64_t>& done_;
  bool worked_ = false;  // has done slices since it last rang the other ranks
};

}  // namespace lockstep::shared
