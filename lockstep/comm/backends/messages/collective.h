// CollectiveOperation: carries out a schedule (comm/algorithms/schedule.h), one step after the other. The
// parts of a step within this machine go to the node (node.h).
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

// The way of a collective: messages between all ranks, or nodes first, as the dtype of the call or in float32
// (wide_copy.h).
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
  // What the schedule is of: what was called, or the same in float32.
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
  std::vector<std::byte> aside_;  // the output, until all is done
  const bool has_local_parts_;
  int local_parts_ = 0;     // under way
  bool lost_node_ = false;  // a rank of this node is gone, has failed or called something else
  std::size_t at_ = 0;
  bool in_step_ = false;
};

}  // namespace lockstep::messages
