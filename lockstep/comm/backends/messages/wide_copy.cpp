#include "lockstep/comm/backends/messages/wide_copy.h"

#include "lockstep/comm/kernels/reduce_kernels.h"

namespace lockstep::messages {
namespace {

// Each buffer begins at a cache line of its own.
std::size_t wide_bytes(std::size_t count) {
  constexpr std::size_t LINE = 64;
  return (count * sizeof(float) + LINE - 1) / LINE * LINE;
}

std::size_t count_of(const Request& request, std::span<const std::byte> part) {
  return part.size() / size_of(request.dtype);
}

}  // namespace

std::size_t WideCopy::bytes(const Request& request) {
  std::size_t bytes = wide_bytes(request.count);
  for (const auto& input : request.inputs) bytes += wide_bytes(count_of(request, input));
  return bytes;
}

WideCopy::WideCopy(const Request& request, std::shared_ptr<void> memory)
    : memory_(std::move(memory)), wide_(request) {
  auto* next = static_cast<std::byte*>(memory_.get());
  wide_.dtype = DType::FLOAT32;
  wide_.keep_alive = nullptr;  // would keep the caller's buffers, which this is a copy of
  wide_.output = next;
  if (request.verb == Verb::ALL_REDUCE) {
    wide_.input = next;
    widen(request.dtype, static_cast<const std::byte*>(request.input), next, request.count);
    return;
  }
  next += wide_bytes(request.count);
  for (auto& input : wide_.inputs) {
    const std::size_t count = count_of(request, input);
    widen(request.dtype, input.data(), next, count);
    input = {next, count * sizeof(float)};
    next += wide_bytes(count);
  }
}

void WideCopy::narrow_into(const Request& request) const {
  narrow(request.dtype, static_cast<const std::byte*>(wide_.output), static_cast<std::byte*>(request.output),
         request.count);
}

}  // namespace lockstep::messages
