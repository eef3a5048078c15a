#include "lockstep/comm/call.h"

#include <array>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

bool reduces(Verb verb) {
  return verb == Verb::ALL_REDUCE || verb == Verb::REDUCE || verb == Verb::REDUCE_SCATTER;
}

bool has_root(Verb verb) {
  return verb == Verb::BROADCAST || verb == Verb::REDUCE || verb == Verb::GATHER || verb == Verb::SCATTER;
}

}  // namespace

std::string_view name_of(Verb verb) {
  constexpr std::array<std::string_view, VERB_COUNT> NAMES = {
      "barrier", "broadcast",      "all_reduce", "reduce", "all_gather", "gather",
      "scatter", "reduce_scatter", "all_to_all", "send",   "recv"};
  return NAMES.at(static_cast<std::size_t>(verb));
}

Call call_of(const Request& request) {
  return {request.verb, request.dtype, request.op, request.root, request.count};
}

std::string describe(const Call& call) {
  if (call.verb == Verb::BARRIER) return "barrier()";
  std::string text = str(name_of(call.verb), "(", name_of(call.dtype), "[", call.count, "]");
  if (reduces(call.verb)) text += str(", ", name_of(call.op));
  if (has_root(call.verb)) text += str(", root ", call.root);
  return text + ")";
}

}  // namespace lockstep
