#include "lockstep/comm/algorithms/schedule.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::algorithms {
namespace {

std::string describe(const Place& place, std::size_t bytes) {
  const std::string range = str("[", place.offset, ",", place.offset + bytes, ")");
  switch (place.area) {
    case Area::INPUT: return "input" + range;
    case Area::OUTPUT: return "output" + range;
    case Area::INPUTS: return str("inputs.", place.index, range);
    case Area::OUTPUTS: return str("outputs.", place.index, range);
    case Area::SCRATCH: return "scratch" + range;
  }
  throw InternalError("a place is nowhere");
}

std::string describe(const Combine& combine) {
  std::string text;
  for (const Place& input : combine.inputs) text += " " + describe(input, combine.bytes);
  return text + str(" -> ", describe(combine.output, combine.bytes), "\n");
}

}  // namespace

Schedule make_schedule(const Shape& shape) {
  const bool flat = shape.nodes.empty();
  switch (shape.verb) {
    case Verb::BARRIER: return barrier(shape);
    case Verb::BROADCAST: return flat ? broadcast(shape) : broadcast_between_nodes(shape);
    case Verb::ALL_REDUCE: return flat ? all_reduce(shape) : all_reduce_between_nodes(shape);
    case Verb::REDUCE: return flat ? reduce(shape) : reduce_between_nodes(shape);
    case Verb::REDUCE_SCATTER: return flat ? reduce_scatter(shape) : reduce_scatter_between_nodes(shape);
    case Verb::ALL_GATHER: return flat ? exchange(shape) : all_gather_between_nodes(shape);
    case Verb::GATHER:
    case Verb::SCATTER:
    case Verb::ALL_TO_ALL: return exchange(shape);
    case Verb::SEND:
    case Verb::RECV: break;
  }
  throw InternalError("a message is not a collective");
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    text += str("step ", i, step.early ? ", early\n" : "\n");
    for (const Copy& c : step.copies)
      text += str("  copy    ", describe(c.from, c.bytes), " -> ", describe(c.to, c.bytes), "\n");
    for (const Local& l : step.locals) {
      text += str("  local   ", name_of(l.verb));
      for (const Local::Part& part : l.parts) text += " " + describe(part.place, part.bytes);
      if (l.verb == Verb::REDUCE_SCATTER) text += str(" -> ", describe(l.result.place, l.result.bytes));
      if (l.verb == Verb::BROADCAST) text += str(" from ", l.root);
      text += "\n";
    }
    for (const Transfer& t : step.sends)
      text += str("  send    ", describe(t.place, t.bytes), " -> rank ", t.peer, "\n");
    for (const Transfer& t : step.receives)
      text += str("  receive rank ", t.peer, " -> ", describe(t.place, t.bytes), "\n");
    for (const Combine& c : step.meanwhile) text += "  meanwhile" + describe(c);
    for (const Combine& c : step.combines) text += "  combine" + describe(c);
  }
  return text;
}

Slice slice_of(std::size_t bytes, int parts, int index) {
  constexpr std::size_t LINE = 64;
  const auto n = static_cast<std::size_t>(parts);
  const std::size_t even = (bytes / n + (bytes % n == 0 ? 0 : 1) + LINE - 1) / LINE * LINE;
  const std::size_t begin = std::min(bytes, even * static_cast<std::size_t>(index));
  return {begin, std::min(bytes - begin, even)};
}

}  // namespace lockstep::algorithms
