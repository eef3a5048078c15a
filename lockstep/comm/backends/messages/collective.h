// CollectiveOperation: executes a schedule (comm/algorithms/schedule.h) step by step. The node executes the
// parts of a step that stay within this machine (node.h).
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/algorithms/schedule.h"
#include "lockstep/comm/backends/messages/node.h"
#include "lockstep/comm/backends/messages/operation.h"
#include "lockstep/comm/backends/messages/wide_copy.h"

namespace lockstep::messages {

// The route of a collective. FLAT: messages between all ranks. NODES: sums within each node first, in the
// dtype of the call. NODES_IN_FLOAT32: the same in float32 (wide_copy.h).
enum class Route { FLAT, NODES, NODES_IN_FLOAT32 };

class CollectiveOperation final : public Operation, public LocalOwner {
 public:
  CollectiveOperation(std::shared_ptr<Core> core, Request request, std::uint64_t sequence);

  std::string describe() const override;
  bool needs(int rank) const override;
  bool has_local_parts() const override { return has_local_parts_; }
  Header header() const;
  void local_ended(const std::exception_ptr& error) override;
  std::vector<int> waiting_in_node() const override;

 private:
  Node* node() const;
  void step() override;
  void begin(const algorithms::Step& step);
  void post_transfers(const algorithms::Step& step, bool ahead);
  void combine(const std::vector<algorithms::Combine>& combines);
  Request request_of(const algorithms::Local& local) const;
  void post_local(const algorithms::Local& local);
  void withdraw() override;
  void widen();
  // Returns the request that the schedule was made for: the caller's, or its copy in float32.
  const Request& carried_out() const { return wide_ ? wide_->request() : request(); }
  std::byte* at(const algorithms::Place& place) const;
  bool overwrites_inputs() const;

  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  const Call call_;
  const Route route_;
  algorithms::Schedule schedule_;
  std::unique_ptr<std::byte, Free> scratch_;
  std::shared_ptr<WideCopy> wide_;
  std::vector<std::byte> aside_;  // the output, until the operation is done
  const bool has_local_parts_;
  int local_parts_ = 0;     // parts within the node that are under way
  bool lost_node_ = false;  // a rank of this node is gone, has failed or made a different call
  std::size_t at_ = 0;
  bool in_step_ = false;
};

}  // namespace lockstep::messages
