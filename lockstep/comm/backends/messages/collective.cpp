#include "lockstep/comm/backends/messages/collective.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/messages/core.h"
#include "lockstep/comm/kernels/reduce_kernels.h"

namespace lockstep::messages {
namespace {

// Whether the result depends on the order in which the contributions are combined.
bool is_rounded(const Request& request) {
  return can_reduce(request.dtype, ReduceOp::AVG) && request.op != ReduceOp::MIN &&
         request.op != ReduceOp::MAX;
}

// Sums over nodes must give the same bits as one tree over all contributions. Partial sums of half precision
// would be rounded more than once, so they travel as float32, in twice the bytes. This is still less than
// what all ranks would send, where a node has more than two ranks.
Route route_of(const Request& request, const Node* node) {
  if (node == nullptr) return Route::FLAT;
  const bool reduces = request.verb == Verb::REDUCE;
  const bool combines = reduces || request.verb == Verb::ALL_REDUCE || request.verb == Verb::REDUCE_SCATTER;
  if (!combines || !is_rounded(request)) return Route::NODES;
  if (!algorithms::keeps_order(node->nodes())) return Route::FLAT;
  if (request.dtype != DType::FLOAT16 && request.dtype != DType::BFLOAT16) return Route::NODES;
  return !reduces && node->nodes().front().size() > 2 ? Route::NODES_IN_FLOAT32 : Route::FLAT;
}

algorithms::Shape shape_of(const Request& request, int rank, int size, const Node* node, Route route) {
  const std::size_t times = route == Route::NODES_IN_FLOAT32 ? sizeof(float) / size_of(request.dtype) : 1;
  algorithms::Shape shape{
      request.verb, rank, size, request.root, size_of(request.dtype) * times, request.count, {}, {}, {}};
  if (route != Route::FLAT) shape.nodes = node->nodes();
  for (const auto& input : request.inputs) shape.inputs.push_back(input.size() * times);
  for (const auto& output : request.outputs) shape.outputs.push_back(output.size());
  return shape;
}

}  // namespace

CollectiveOperation::CollectiveOperation(std::shared_ptr<Core> core, Request request, std::uint64_t sequence)
    : Operation(std::move(core), std::move(request), sequence),
      call_(call_of(this->request())),
      route_(route_of(this->request(), node())),
      schedule_(algorithms::make_schedule(shape_of(this->request(), this->core().roster().rank(),
                                                   this->core().roster().size(), node(), route_))),
      has_local_parts_(std::any_of(schedule_.steps.begin(), schedule_.steps.end(),
                                   [](const auto& step) { return !step.locals.empty(); })) {}

Node* CollectiveOperation::node() const { return core().roster().node().get(); }

// A reduce_scatter of several steps writes the output while it still needs inputs. The output may overlap
// one.
bool CollectiveOperation::overwrites_inputs() const {
  if (request().verb != Verb::REDUCE_SCATTER || schedule_.steps.size() < 2 || wide_) return false;
  const auto begin = reinterpret_cast<std::uintptr_t>(request().output);
  const std::size_t bytes = request().count * size_of(request().dtype);
  return std::any_of(request().inputs.begin(), request().inputs.end(), [&](const auto& input) {
    const auto other = reinterpret_cast<std::uintptr_t>(input.data());
    return begin < other + input.size() && other < begin + bytes;
  });
}

std::string CollectiveOperation::describe() const { return describe_own(request(), sequence()); }

bool CollectiveOperation::needs(int rank) const {
  const auto peers = transfers().receiving_from();
  if (lost_node_ && node()->is_here(rank)) return true;
  return std::find(peers.begin(), peers.end(), rank) != peers.end();
}

Header CollectiveOperation::header() const {
  Header header;
  header.group = core().roster().id();
  header.sequence = sequence();
  header.set(call_);
  return header;
}

// The copy is in memory shared with the ranks of the node, which then copy nothing.
void CollectiveOperation::widen() {
  constexpr std::size_t ALIGNMENT = 64;
  const std::size_t bytes = WideCopy::bytes(request()) + ALIGNMENT;
  Backend* const local = node()->local();
  std::shared_ptr<void> memory =
      local != nullptr
          ? local->allocate_shared(bytes)
          : std::shared_ptr<void>(std::aligned_alloc(ALIGNMENT, bytes / ALIGNMENT * ALIGNMENT), std::free);
  if (!memory) throw std::bad_alloc();
  wide_ = std::make_shared<WideCopy>(request(), std::move(memory));
}

std::byte* CollectiveOperation::at(const algorithms::Place& place) const {
  using algorithms::Area;
  const Request& request = carried_out();
  const auto index = static_cast<std::size_t>(place.index);
  const auto writable = [](const void* data) { return static_cast<std::byte*>(const_cast<void*>(data)); };
  std::byte* base = nullptr;
  switch (place.area) {
    case Area::INPUT: base = writable(request.input); break;
    case Area::OUTPUT:
      base = aside_.empty() ? static_cast<std::byte*>(request.output) : const_cast<std::byte*>(aside_.data());
      break;
    case Area::INPUTS: base = writable(request.inputs.at(index).data()); break;
    case Area::OUTPUTS: base = request.outputs.at(index).data(); break;
    case Area::SCRATCH: base = scratch_.get(); break;
  }
  return base == nullptr ? nullptr : base + place.offset;
}

// Ends the step that is under way, then begins the next one. After the last step it copies the result to its
// place.
void CollectiveOperation::step() {
  if (in_step_) {
    combine(schedule_.steps[at_].combines);
    transfers().advance();
    in_step_ = false;
    ++at_;
  }
  if (at_ == schedule_.steps.size()) {
    scratch_.reset();
    if (wide_) std::exchange(wide_, nullptr)->narrow_into(request());
    std::copy(aside_.begin(), aside_.end(), static_cast<std::byte*>(request().output));
    return finish();
  }
  in_step_ = true;
  if (at_ == 0 && route_ == Route::NODES_IN_FLOAT32) widen();
  if (at_ == 0 && overwrites_inputs()) aside_.resize(request().count * size_of(request().dtype));
  begin(schedule_.steps[at_]);
}

// The order matters: the local parts run in the background while this rank combines `meanwhile`. Transfers of
// the next step are posted now if they do not depend on this one (`early`).
void CollectiveOperation::begin(const algorithms::Step& step) {
  constexpr std::size_t ALIGNMENT = 64;
  if (!scratch_ && schedule_.scratch_bytes > 0) {
    const std::size_t bytes = (schedule_.scratch_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    scratch_.reset(static_cast<std::byte*>(std::aligned_alloc(ALIGNMENT, bytes)));
    if (!scratch_) throw std::bad_alloc();
  }
  for (const auto& copy : step.copies) {
    if (copy.bytes > 0 && at(copy.from) != at(copy.to)) std::memmove(at(copy.to), at(copy.from), copy.bytes);
  }
  for (const auto& local : step.locals) post_local(local);
  if (!step.early || at_ == 0) post_transfers(step, /*ahead=*/false);
  combine(step.meanwhile);
  if (at_ + 1 < schedule_.steps.size() && schedule_.steps[at_ + 1].early)
    post_transfers(schedule_.steps[at_ + 1], /*ahead=*/true);
}

void CollectiveOperation::post_transfers(const algorithms::Step& step, bool ahead) {
  for (const auto& transfer : step.receives) {
    transfers().receive({nullptr,
                         transfer.peer,
                         sequence(),
                         transfer.label,
                         {at(transfer.place), transfer.bytes},
                         transfer.whole,
                         ahead});
  }
  for (const auto& transfer : step.sends) {
    Header message = header();
    message.label = transfer.label;
    message.whole = transfer.whole;
    transfers().send(transfer.peer, message, {at(transfer.place), transfer.bytes}, ahead);
  }
}

void CollectiveOperation::combine(const std::vector<algorithms::Combine>& combines) {
  for (const auto& combination : combines) {
    if (!is_pending()) return;
    if (combination.bytes == 0) continue;
    fail_point("comm.claimed_slice");
    std::vector<const std::byte*> inputs;
    for (const auto& place : combination.inputs) inputs.push_back(at(place));
    std::byte* output = at(combination.output);
    const DType dtype = carried_out().dtype;
    const std::size_t count = combination.bytes / size_of(dtype);
    if (combination.of_nodes && call_.op == ReduceOp::AVG) {
      reduce(dtype, ReduceOp::SUM, inputs, {&output, 1}, count);
      divide(dtype, output, count, core().roster().size());
    } else {
      reduce(dtype, call_.op, inputs, {&output, 1}, count);
    }
  }
}

Request CollectiveOperation::request_of(const algorithms::Local& local) const {
  Request made;
  made.verb = local.verb;
  made.dtype = carried_out().dtype;
  made.op = call_.op == ReduceOp::AVG ? ReduceOp::SUM : call_.op;
  made.keep_alive = wide_ ? wide_ : request().keep_alive;
  made.acting = request().acting;
  if (local.verb == Verb::BROADCAST) {
    made.root = local.root;
    made.count = local.parts[0].bytes / size_of(made.dtype);
    made.input = made.output = at(local.parts[0].place);
    return made;
  }
  // A reduction ignores `root`. The field carries the caller's verb, operator and root instead, so that ranks
  // of the node that disagree about them get an error.
  made.root = (static_cast<int>(call_.verb) * 64 + static_cast<int>(call_.op)) ^ call_.root;
  const algorithms::Local::Part& own = local.parts[static_cast<std::size_t>(node()->local()->rank())];
  made.count = own.bytes / size_of(made.dtype);
  for (const auto& part : local.parts) {
    if (local.verb == Verb::REDUCE_SCATTER) {
      made.inputs.emplace_back(at(part.place), part.bytes);
    } else {
      made.outputs.emplace_back(at(part.place), part.bytes);
    }
  }
  if (local.verb == Verb::REDUCE_SCATTER) {
    made.output = at(local.result.place);
  } else {
    made.input = at(own.place);
  }
  return made;
}

void CollectiveOperation::post_local(const algorithms::Local& local) {
  if (!is_pending()) return;
  Request part = request_of(local);
  transfers().add_local();
  ++local_parts_;
  const bool helped = node()->post(std::static_pointer_cast<CollectiveOperation>(shared_from_this()),
                                   std::move(part), !request().async_op);
  if (helped) core().roster().fabric().turns().note_news();
}

namespace {

// Returns true for an error that all ranks of the group will hear of. The death or departure of a rank of
// this node shows on its connection too, and ranks that disagree about calls hear each other's calls. Only
// sizes in lists do not show in a call: then `sizes` becomes the sentence that says how they differ.
bool is_of_the_group(const std::exception_ptr& error, std::string& sizes) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost&) {
  } catch (const Aborted&) {
  } catch (const Mismatch& found) {
    if (found.kind() == MismatchKind::SIZES) sizes = found.what();
  } catch (...) {
    return false;
  }
  return true;
}

}  // namespace

// Called without the lock.
void CollectiveOperation::local_ended(const std::exception_ptr& error) {
  const Session session(core().roster().fabric());
  if (!is_pending()) return;
  std::string sizes;
  if (error && is_of_the_group(error, sizes)) {
    lost_node_ = true;
    return core().lost_node(*this, sizes);
  }
  --local_parts_;
  if (!error) return transfers().end_local();
  give_up(error);
}

std::vector<int> CollectiveOperation::waiting_in_node() const {
  std::vector<int> others;
  if (local_parts_ == 0) return others;
  for (const int rank : node()->ranks()) {
    if (rank != core().roster().rank()) others.push_back(rank);
  }
  return others;
}

void CollectiveOperation::withdraw() {
  if (has_local_parts_) node()->withdraw(*this);
}

}  // namespace lockstep::messages
