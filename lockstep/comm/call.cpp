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

std::int32_t mark_of(const Call& call) { return has_mark(call.verb) ? call.root : 0; }

std::string before(std::string_view words) { return words.empty() ? std::string() : str(" ", words); }

}  // namespace

bool has_mark(Verb verb) { return !has_root(verb) && !is_message(verb); }

std::string_view name_of(Verb verb) {
  constexpr std::array<std::string_view, VERB_COUNT> NAMES = {
      "barrier", "broadcast",      "all_reduce", "reduce", "all_gather", "gather",
      "scatter", "reduce_scatter", "all_to_all", "send",   "recv"};
  return NAMES.at(static_cast<std::size_t>(verb));
}

Call call_of(const Request& request) {
  return {.verb = request.verb,
          .dtype = request.dtype,
          .op = request.op,
          .purpose = request.acting.purpose,
          .root = request.root,
          .count = request.count};
}

std::string describe_last(Verb verb, Purpose purpose, std::uint64_t sequence) {
  return str(name_of(verb), " #", sequence, before(words_of(purpose)));
}

std::string describe_own(const Request& request, std::uint64_t sequence) {
  const std::string* name = request.acting.name;
  return describe_last(request.verb, request.acting.purpose, sequence) +
         (name != nullptr ? str(" (", printable(*name), ")") : "");
}

std::string describe(const Call& call) {
  const std::string why = before(words_of(call.purpose)) + before(words_of_mark(call.purpose, mark_of(call)));
  if (call.verb == Verb::BARRIER) return "barrier()" + why;
  std::string text = str(name_of(call.verb), "(", name_of(call.dtype), "[", call.count, "]");
  if (reduces(call.verb)) text += str(", ", name_of(call.op));
  if (has_root(call.verb)) text += str(", root ", call.root);
  return text + ")" + why;
}

std::string describe_message(const Request& request) {
  const bool is_send = request.verb == Verb::SEND;
  const std::string peer = request.root == ANY_SOURCE ? "any rank" : str("rank ", request.root);
  return str(name_of(request.verb), "(", name_of(request.dtype), "[", request.count, "], ",
             is_send ? "to " : "from ", peer, request.tag < 0 ? "" : str(", tag ", request.tag), ")",
             before(words_of(request.acting.purpose)));
}

std::string usual_cause(const Call& mine, const Call& theirs) {
  return usual_cause(mine.purpose, mark_of(mine), theirs.purpose, mark_of(theirs));
}

std::string describe_disagreement(std::uint64_t sequence, int my_rank, const Call& mine, int their_rank,
                                  const Call& theirs) {
  return str("ranks disagree about collective #", sequence, ": rank ", my_rank, " called ", describe(mine),
             ", rank ", their_rank, " called ", describe(theirs),
             "; all ranks must make the same calls in the same order", usual_cause(mine, theirs));
}

std::string describe_message_disagreement(std::uint64_t number, int from, int to, std::int64_t tag,
                                          const Call& sent, const Call& received) {
  return str("ranks disagree about message ", number, " from rank ", from, " to rank ", to, ", tag ", tag,
             ": sent ", name_of(sent.dtype), "[", sent.count, "], received as ", name_of(received.dtype), "[",
             received.count, "]");
}

std::string describe_disagreement(std::uint64_t sequence, const Call& mine, const Call& theirs,
                                  const Sizes& sizes) {
  const std::size_t element = size_of(mine.dtype);
  return str("ranks disagree about collective #", sequence, ": rank ", sizes.rank, " called ", describe(mine),
             " and expects ", sizes.expected / element, " elements of rank ", sizes.source, ", which called ",
             describe(theirs), " and has ", sizes.found / element, " for it");
}

}  // namespace lockstep
