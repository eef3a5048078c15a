#include "lockstep/comm/backends/shared/request_buffers.h"

#include <functional>

namespace lockstep::shared {
namespace {

bool overlap(std::span<const std::byte> data, const void* output, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(output);
  const std::less<> before;
  return bytes > 0 && before(first, data.data() + data.size()) && before(data.data(), first + bytes);
}

std::size_t bytes_of(const Request& request) { return request.count * size_of(request.dtype); }

}  // namespace

bool is_overwritten(const Request& request, int own, std::span<const std::byte> data) {
  const bool has_one = request.verb == Verb::REDUCE_SCATTER || request.verb == Verb::SCATTER;
  if (has_one && overlap(data, request.output, bytes_of(request))) return true;
  for (std::size_t r = 0; r < request.outputs.size(); ++r) {
    const auto& output = request.outputs[r];
    if (static_cast<int>(r) == own && output.data() == data.data()) continue;
    if (overlap(data, output.data(), output.size())) return true;
  }
  return false;
}

std::size_t bytes_expected(const Request& request, int own, int from) {
  if (request.verb == Verb::REDUCE_SCATTER) return bytes_of(request);
  if (request.verb == Verb::BROADCAST)
    return from == request.root && own != request.root ? bytes_of(request) : 0;
  return request.outputs[static_cast<std::size_t>(from)].size();
}

std::optional<std::size_t> bytes_to_be_posted(const Request& request, int own, int rank) {
  const bool gathers =
      request.verb == Verb::ALL_GATHER || (request.verb == Verb::GATHER && request.root == own);
  if (!gathers) return std::nullopt;
  return bytes_expected(request, own, rank);
}

}  // namespace lockstep::shared
