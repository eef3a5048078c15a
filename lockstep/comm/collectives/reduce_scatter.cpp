#include "lockstep/comm/collectives/reduce_scatter.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "lockstep/comm/collectives/check.h"

namespace lockstep::comm {
namespace {

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

// Copies the inputs that the output overlaps, because a backend may write the output before it has read all
// inputs. The rank's own part is not copied if the output lies exactly on it. Inputs that are one buffer stay
// one buffer.
void save_overwritten(const ProcessGroup& group, bool is_whole,
                      std::vector<std::span<const std::byte>>& inputs, std::span<const std::byte> output,
                      std::shared_ptr<void>& keep_alive) {
  const auto is_overwritten = [&](std::span<const std::byte> input) {
    return (input.data() != output.data() || input.size() != output.size()) && overlap(input, output);
  };
  if (std::none_of(inputs.begin(), inputs.end(), is_overwritten)) return;
  if (group.device() != DeviceType::CPU)
    refuse(Verb::REDUCE_SCATTER, group, "the output overlaps an input, and is not this rank's part of it");
  std::vector<std::vector<std::byte>> copies;
  if (is_whole) {
    const std::vector<std::byte>& copy =
        copies.emplace_back(inputs.front().data(), inputs.back().data() + inputs.back().size());
    for (std::size_t r = 0; r < inputs.size(); ++r)
      inputs[r] = std::span(copy).subspan(r * inputs[r].size(), inputs[r].size());
  }
  for (auto& input : inputs) {
    if (is_whole || !is_overwritten(input)) continue;
    copies.emplace_back(input.begin(), input.end());
    input = copies.back();
  }
  using Kept = std::pair<std::shared_ptr<void>, std::vector<std::vector<std::byte>>>;
  keep_alive = std::make_shared<Kept>(std::move(keep_alive), std::move(copies));
}

}  // namespace

Work reduce_scatter(const ProcessGroup& group, Destination output,
                    std::vector<std::span<const std::byte>> inputs, ReduceOp op, bool async_op,
                    std::shared_ptr<void> keep_alive) {
  if (!takes_part(Verb::REDUCE_SCATTER, group)) return {};
  check_reduction(Verb::REDUCE_SCATTER, group, output.dtype, op);
  check_buffer(Verb::REDUCE_SCATTER, group, output.data, output.count, output.dtype);
  const bool is_whole = cut_whole(group, inputs, output.count * size_of(output.dtype));
  check_parts(Verb::REDUCE_SCATTER, group, inputs, output.dtype, "input");
  check_own_part(Verb::REDUCE_SCATTER, group, inputs, output.count, output.dtype);
  Request request;
  request.verb = Verb::REDUCE_SCATTER;
  request.dtype = output.dtype;
  request.op = op;
  request.count = output.count;
  request.output = output.data;
  save_overwritten(group, is_whole, inputs,
                   {static_cast<const std::byte*>(output.data), output.count * size_of(output.dtype)},
                   keep_alive);
  request.inputs = std::move(inputs);
  request.is_whole = is_whole;
  request.keep_alive = std::move(keep_alive);
  return run(group, std::move(request), async_op);
}

}  // namespace lockstep::comm
