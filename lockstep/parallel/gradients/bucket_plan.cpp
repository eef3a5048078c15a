#include "lockstep/parallel/gradients/bucket_plan.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

void check(std::span<const BucketParameter> parameters, std::span<const std::size_t> order,
           const BucketCaps& caps) {
  if (caps.first_bytes == 0 || caps.bytes == 0)
    throw InvalidArgument("bucket_plan: a bucket cap must be at least one byte");
  std::vector<bool> seen(parameters.size(), false);
  for (const std::size_t parameter : order) {
    if (parameter >= parameters.size() || seen[parameter]) {
      throw InvalidArgument(str("bucket_plan: the order must name each of ", parameters.size(),
                                " parameters once, but ", parameter, " is ",
                                parameter >= parameters.size() ? "none of them" : "named twice"));
    }
    seen[parameter] = true;
  }
  if (order.size() != parameters.size()) {
    throw InvalidArgument(
        str("bucket_plan: the order names ", order.size(), " of ", parameters.size(), " parameters"));
  }
}

std::size_t align_up(std::size_t elements, std::size_t element_bytes) {
  const std::size_t step = std::max<std::size_t>(1, GRADIENT_ALIGNMENT_BYTES / element_bytes);
  return (elements + step - 1) / step * step;
}

// The bucket of one dtype that still takes gradients.
struct OpenBucket {
  BucketSpec spec;
  std::size_t cap = 0;
};

}  // namespace

BucketPlan bucket_plan(std::span<const BucketParameter> parameters, std::span<const std::size_t> order,
                       const BucketCaps& caps) {
  check(parameters, order, caps);
  std::array<OpenBucket, DTYPE_COUNT> open;
  std::vector<std::pair<std::size_t, BucketSpec>> closed;  // with the arrival of the last gradient
  std::array<std::size_t, DTYPE_COUNT> last_arrival = {};
  for (std::size_t arrival = 0; arrival < order.size(); ++arrival) {
    const auto [count, dtype] = parameters[order[arrival]];
    const auto kind = static_cast<std::size_t>(dtype);
    OpenBucket& bucket = open[kind];
    if (bucket.cap == 0) bucket.cap = caps.first_bytes;
    const std::size_t offset = align_up(bucket.spec.elements, size_of(dtype));
    bucket.spec.dtype = dtype;
    bucket.spec.entries.push_back({.parameter = order[arrival], .offset = offset});
    bucket.spec.elements = offset + count;
    last_arrival[kind] = arrival;
    if (bucket.spec.elements * size_of(dtype) >= bucket.cap) {
      closed.emplace_back(arrival, std::move(bucket.spec));
      bucket = {.spec = {}, .cap = caps.bytes};
    }
  }
  for (std::size_t kind = 0; kind < open.size(); ++kind) {
    if (!open[kind].spec.entries.empty()) closed.emplace_back(last_arrival[kind], std::move(open[kind].spec));
  }
  std::sort(closed.begin(), closed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  BucketPlan plan;
  for (auto& [arrival, spec] : closed) plan.push_back(std::move(spec));
  return plan;
}

std::vector<std::size_t> reverse_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

std::vector<std::size_t> arrival_order(std::span<const std::size_t> arrived, std::size_t count) {
  std::vector<bool> seen(count, false);
  std::vector<std::size_t> order;
  for (std::size_t i = arrived.size(); i-- > 0;) {
    if (!seen.at(arrived[i])) order.push_back(arrived[i]);
    seen[arrived[i]] = true;
  }
  std::reverse(order.begin(), order.end());
  for (const std::size_t parameter : reverse_order(count)) {
    if (!seen[parameter]) order.push_back(parameter);
  }
  return order;
}

std::string to_string(const BucketPlan& plan) {
  std::string text;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    text +=
        str("#", i, " ", name_of(plan[i].dtype), " ", plan[i].elements * size_of(plan[i].dtype), " bytes:");
    for (const BucketEntry& entry : plan[i].entries) text += str(" ", entry.parameter);
    text += "\n";
  }
  return text;
}

}  // namespace lockstep
