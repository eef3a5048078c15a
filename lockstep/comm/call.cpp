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

constexpr std::string_view EXPECTS = " and expects ";

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

std::string describe_disagreement(std::uint64_t sequence, const Call& mine, const Call& theirs,
                                  const Sizes& sizes) {
  const std::size_t element = size_of(mine.dtype);
  return str("ranks disagree about collective #", sequence, ": rank ", sizes.rank, " called ", describe(mine),
             EXPECTS, sizes.expected / element, " elements of rank ", sizes.source, ", which called ",
             describe(theirs), " and has ", sizes.found / element, " for it");
}

bool is_about_sizes(std::string_view text) { return text.find(EXPECTS) != std::string_view::npos; }

}  // namespace lockstep
