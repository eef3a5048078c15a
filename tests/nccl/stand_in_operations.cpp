// See stand_in_operations.h.
#include "tests/nccl/stand_in_operations.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "tests/nccl/stand_in_exchange.h"
#include "tests/nccl/stand_in_sums.h"

namespace lockstep::nccl::stand_in {
namespace {

// One collective on one rank.
class Collective {
 public:
  explicit Collective(const Operation& operation)
      : operation_(operation),
        comm_(*operation.comm),
        rank_(comm_.rank()),
        size_(comm_.size()),
        element_(element_size(operation.type)) {}

  void run() {
    switch (operation_.verb) {
      case Verb::ALL_REDUCE: return all_reduce();
      case Verb::BROADCAST: return broadcast();
      case Verb::REDUCE: return reduce();
      case Verb::ALL_GATHER: return all_gather();
      case Verb::REDUCE_SCATTER: return reduce_scatter();
      case Verb::SEND:
      case Verb::RECV: break;
    }
  }

 private:
  Tag tag(unsigned step) const {
    const bool has_root = operation_.verb == Verb::BROADCAST || operation_.verb == Verb::REDUCE;
    return {operation_.verb, operation_.type, operation_.op, has_root ? operation_.peer : 0, step,
            operation_.count};
  }

  // Where the slice of a rank begins, in elements; of size_: the end.
  std::size_t slice(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    const auto n = static_cast<std::size_t>(size_);
    return operation_.count / n * r + std::min(r, operation_.count % n);
  }

  void copy_own(char* to, const char* from, std::size_t bytes) {
    const Communicator::Touch touch(comm_);
    if (touch && to != from) std::memmove(to, from, bytes);
  }

  // Sums up `own` and the contributions of the others, which lie in `others`, a piece for each rank.
  void sum(const char* own, const std::vector<char>& others, std::size_t count, char* result) {
    std::vector<const char*> contributions;
    for (int r = 0; r < size_; ++r) {
      const char* const other = others.data() + static_cast<std::size_t>(r) * count * element_;
      contributions.push_back(r == rank_ ? own : other);
    }
    const Communicator::Touch touch(comm_);
    if (touch) combine(operation_.type, operation_.op, contributions, result, count);
  }

  // Gives each other rank r its `mine(r)` of `count(r)` elements, and receives pieces of `count(rank_)` from
  // all.
  template <class Mine, class Count> std::vector<char> to_their_owners(const Mine& mine, const Count& count) {
    const std::size_t bytes = count(rank_) * element_;
    std::vector<char> others(bytes * static_cast<std::size_t>(size_));
    Exchange exchange;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      exchange.send(comm_, r, mine(r), count(r) * element_, tag(0));
      exchange.receive(comm_, r, others.data() + bytes * static_cast<std::size_t>(r), bytes, tag(0));
    }
    exchange.run();
    return others;
  }

  void all_reduce() {
    const auto count = [this](int r) { return slice(r + 1) - slice(r); };
    const auto others =
        to_their_owners([this](int r) { return operation_.input + slice(r) * element_; }, count);
    const auto place = [this](int r) { return operation_.output + slice(r) * element_; };
    sum(operation_.input + slice(rank_) * element_, others, count(rank_), place(rank_));
    Exchange exchange;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      exchange.send(comm_, r, place(rank_), count(rank_) * element_, tag(1));
      exchange.receive(comm_, r, place(r), count(r) * element_, tag(1));
    }
    exchange.run();
  }

  void reduce_scatter() {
    const auto mine = [this](int r) {
      return operation_.input + static_cast<std::size_t>(r) * operation_.count * element_;
    };
    const auto others = to_their_owners(mine, [this](int) { return operation_.count; });
    sum(mine(rank_), others, operation_.count, operation_.output);
  }

  void reduce() {
    const std::size_t bytes = operation_.count * element_;
    std::vector<char> others(rank_ == operation_.peer ? bytes * static_cast<std::size_t>(size_) : 0);
    Exchange exchange;
    if (rank_ != operation_.peer) exchange.send(comm_, operation_.peer, operation_.input, bytes, tag(0));
    for (int r = 0; r < size_ && rank_ == operation_.peer; ++r) {
      if (r != rank_)
        exchange.receive(comm_, r, others.data() + bytes * static_cast<std::size_t>(r), bytes, tag(0));
    }
    exchange.run();
    if (rank_ == operation_.peer) sum(operation_.input, others, operation_.count, operation_.output);
  }

  void broadcast() {
    const std::size_t bytes = operation_.count * element_;
    Exchange exchange;
    if (rank_ != operation_.peer) {
      exchange.receive(comm_, operation_.peer, operation_.output, bytes, tag(0));
    } else {
      copy_own(operation_.output, operation_.input, bytes);
      for (int r = 0; r < size_; ++r) {
        if (r != rank_) exchange.send(comm_, r, operation_.output, bytes, tag(0));
      }
    }
    exchange.run();
  }

  void all_gather() {
    const std::size_t bytes = operation_.count * element_;
    const auto place = [&](int r) { return operation_.output + static_cast<std::size_t>(r) * bytes; };
    copy_own(place(rank_), operation_.input, bytes);
    Exchange exchange;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      exchange.send(comm_, r, place(rank_), bytes, tag(0));
      exchange.receive(comm_, r, place(r), bytes, tag(0));
    }
    exchange.run();
  }

  const Operation& operation_;
  Communicator& comm_;
  const int rank_;
  const int size_;
  const std::size_t element_;
};

void wait_for_abort(const Communicator& comm) {
  for (Pause pause; !comm.is_aborted(); pause()) {
  }
}

void do_wrong(const Operation& operation) {
  Communicator& comm = *operation.comm;
  const Order& order = operation.order;
  if (order.fault == Fault::LATE) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(order.milliseconds);
    for (Pause pause; !comm.is_aborted() && std::chrono::steady_clock::now() < end; pause()) {
    }
  }
  if (order.fault == Fault::ASYNC) {
    comm.set_state(REMOTE_ERROR,
                   "stand-in: told to fail in " + name_of(order.verb) + " " + std::to_string(order.nth));
  }
  if (order.fault == Fault::ASYNC || order.fault == Fault::HANG) wait_for_abort(comm);
}

void add_message(Exchange& exchange, const Operation& operation) {
  const Tag tag{Verb::SEND, operation.type, SUM, 0, 0, operation.count};
  const std::size_t bytes = operation.count * element_size(operation.type);
  if (operation.verb == Verb::SEND) {
    exchange.send(*operation.comm, operation.peer, operation.input, bytes, tag);
  } else {
    exchange.receive(*operation.comm, operation.peer, operation.output, bytes, tag);
  }
}

}  // namespace

Launch::Launch(std::vector<Operation> operations) : operations_(std::move(operations)) {
  for (const Operation& operation : operations_) {
    const auto has_turn = [&](const auto& turn) { return turn.first == operation.comm; };
    if (std::none_of(turns_.begin(), turns_.end(), has_turn)) {
      turns_.emplace_back(operation.comm, operation.comm->take_turn());
    }
  }
}

void Launch::run() const {
  for (const auto& [comm, turn] : turns_) comm->await_turn(turn);
  Exchange messages;
  for (const Operation& operation : operations_) {
    do_wrong(operation);
    if (operation.is_point_to_point()) add_message(messages, operation);
  }
  messages.run();
  for (const Operation& operation : operations_) {
    if (!operation.is_point_to_point()) Collective(operation).run();
  }
  for (const auto& [comm, turn] : turns_) comm->end_turn();
}

}  // namespace lockstep::nccl::stand_in
