#include "lockstep/train/agreed_metric.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/job/job.h"

namespace lockstep {
namespace {

// Returns the fewest digits that distinguish it from every other number.
std::string digits_of(double value) {
  std::array<char, 40> text = {};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

bool has_same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

}  // namespace

double agreed_metric(const std::string& call, double metric, const AlikeNumbers& alike,
                     const std::optional<ProcessGroup>& given) {
  if (!given && !is_initialized()) return metric;
  const ProcessGroup group = given ? *given : world();
  group.require_member(call);
  const Acting acting(Purpose::MEAN);
  std::vector<double> mine = {metric};
  for (const auto& [name, value] : alike) mine.push_back(value);
  const std::size_t each = mine.size();
  std::vector<double> all(each * static_cast<std::size_t>(group.size()));
  comm::all_gather(group, std::span<const double>(mine), std::span<double>(all)).wait();
  double sum = 0;
  bool is_same = true;
  for (std::size_t r = 0; r < static_cast<std::size_t>(group.size()); ++r) {
    for (std::size_t i = 0; i + 1 < each; ++i) {
      const double theirs = all[r * each + i + 1];
      if (has_same_bits(theirs, all[i + 1])) continue;
      throw Mismatch(lockstep::str(
          call, " on group \"", group.name(), "\", rank ", group.rank(), " of ", group.size(), ": ",
          alike[i].first, " is ", digits_of(theirs), " on rank ", r, " and ", digits_of(all[i + 1]),
          " on rank 0, so ranks would decide differently; make it with the same options on all ranks, and "
          "load the same state on all of them (load_checkpoint does)"));
    }
    sum += all[r * each];
    is_same = is_same && has_same_bits(all[r * each], all[0]);
  }
  return is_same ? metric : sum / group.size();
}

at::Tensor state_entry(const std::string& call, const NamedTensors& tensors, const std::string& name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& entry) { return entry.first == name; });
  if (found == tensors.end())
    throw InvalidArgument(
        lockstep::str(call, ": the state has no ", in_quotes(name), "; give what state_dict() returned"));
  return found->second;
}

}  // namespace lockstep
