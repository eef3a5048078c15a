#include "lockstep/comm/backends/segment/segment_plan.h"

#include <algorithm>
#include <charconv>

#include "lockstep/base/str.h"
#include "lockstep/os/file_size_limit.h"
#include "lockstep/os/huge_page.h"
#include "lockstep/os/shared_memory.h"

namespace lockstep::shared {
namespace {

constexpr std::size_t PAGE = 4096;

std::size_t round_down(std::size_t bytes) { return bytes / PAGE * PAGE; }

}  // namespace

MemoryFacts memory_facts() {
  const std::size_t left = address_space_left();
  return {physical_memory(), left, largest_file(), address_space_limit() != NO_LIMIT};
}

SegmentPlan segment_plan(int ranks, const MemoryFacts& facts) {
  // A mapping begins at a huge page, so up to one huge page is lost in front of each segment.
  const std::size_t share = facts.address_space / 2 / static_cast<std::size_t>(ranks);
  const std::size_t addresses = share > 2 * HUGE_PAGE ? share - HUGE_PAGE : share / 2;
  SegmentPlan plan{round_down(facts.physical), SegmentBound::MEMORY};
  if (addresses < plan.bytes) {
    plan = {round_down(addresses), facts.is_limited ? SegmentBound::ADDRESS_LIMIT : SegmentBound::ADDRESSES};
  }
  if (facts.largest_file < plan.bytes) plan = {round_down(facts.largest_file), SegmentBound::FILE_LIMIT};
  return plan;
}

std::string SegmentPlan::text() const { return str(bytes, ' ', static_cast<int>(bound)); }

std::optional<SegmentPlan> SegmentPlan::parse(const std::string& text) {
  SegmentPlan plan;
  int bound = -1;
  const char* const end = text.data() + text.size();
  const auto [space, error] = std::from_chars(text.data(), end, plan.bytes);
  if (error != std::errc() || space == end || *space != ' ') return std::nullopt;
  const auto [last, wrong] = std::from_chars(space + 1, end, bound);
  if (wrong != std::errc() || last != end || bound < 0 || bound > static_cast<int>(SegmentBound::FILE_LIMIT))
    return std::nullopt;
  plan.bound = static_cast<SegmentBound>(bound);
  return plan;
}

std::size_t smallest(const std::vector<SegmentPlan>& plans) {
  const auto least = std::min_element(plans.begin(), plans.end(),
                                      [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  return static_cast<std::size_t>(least - plans.begin());
}

std::string explain(const SegmentPlan& plan, int rank) {
  switch (plan.bound) {
    case SegmentBound::MEMORY: return "";
    case SegmentBound::ADDRESSES:
      return " (every rank maps the segments of all ranks, and the addresses of a process limit their size; "
             "fewer ranks on this machine have larger segments)";
    case SegmentBound::ADDRESS_LIMIT:
      return str(" (every rank maps the segments of all ranks, and the address space of rank ", rank,
                 " is limited; raise `ulimit -v` or the limit of the batch system (h_vmem), or start fewer "
                 "ranks on this machine)");
    case SegmentBound::FILE_LIMIT:
      return str(" (shared memory is a file, and the size of files of rank ", rank,
                 " is limited; raise `ulimit -f`)");
  }
  return "";
}

}  // namespace lockstep::shared
