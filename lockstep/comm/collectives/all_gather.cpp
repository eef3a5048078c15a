#include "lockstep/comm/collectives/all_gather.h"

#include "lockstep/comm/collectives/check.h"

namespace lockstep::comm {

Work all_gather(const ProcessGroup& group, const void* input, std::size_t count, DType dtype,
                std::vector<std::span<std::byte>> outputs, bool async_op, std::shared_ptr<void> keep_alive) {
  if (!takes_part(Verb::ALL_GATHER, group)) return {};
  check_buffer(Verb::ALL_GATHER, group, input, count, dtype);
  const bool is_whole = cut_whole(group, outputs, count * size_of(dtype));
  if (outputs.size() != static_cast<std::size_t>(group.size())) {
    refuse(Verb::ALL_GATHER, group, "one output per rank is needed: ", group.size(), " of ", count,
           " elements each, or one output of ", count * static_cast<std::size_t>(group.size()), " elements");
  }
  for (const auto& output : outputs) {
    if (output.size() % size_of(dtype) != 0)
      refuse(Verb::ALL_GATHER, group, "an output is not a whole number of ", name_of(dtype));
    check_buffer(Verb::ALL_GATHER, group, output.data(), output.size() / size_of(dtype), dtype);
  }
  const std::size_t own = outputs[static_cast<std::size_t>(group.rank())].size() / size_of(dtype);
  if (own != count)
    refuse(Verb::ALL_GATHER, group, "the output for this rank has ", own, " elements, its input has ", count);
  Request request;
  request.verb = Verb::ALL_GATHER;
  request.dtype = dtype;
  request.count = count;
  request.input = input;
  request.outputs = std::move(outputs);
  request.is_whole = is_whole;
  request.keep_alive = std::move(keep_alive);
  return run(group, std::move(request), async_op);
}

}  // namespace lockstep::comm
