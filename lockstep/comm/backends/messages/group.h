// Group: a process group over messages, as a Backend. Its Core does the work, and lives as long as any
// operation does.
//
// Threads: any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/backends/messages/core.h"

namespace lockstep::messages {

class Group final : public Backend {
 public:
  static std::shared_ptr<Group> make(Membership membership);
  // Makes the group of all connected ranks. `membership` holds all its fields except those that follow from
  // the connections.
  static ProcessGroup make_world(Connections connections, Membership membership);

  std::string_view name() const override { return roster().backend_name(); }
  int rank() const override { return roster().rank(); }
  int size() const override { return roster().size(); }
  const std::string& group_name() const override { return roster().membership().name; }
  std::shared_ptr<WorkState> start(Request request) override;
  std::shared_ptr<void> allocate_shared(std::size_t bytes) override;
  std::vector<std::vector<int>> machines() const override;
  std::shared_ptr<Backend> make_groups(const SplitRequest& split) override;
  void abort(const std::string& reason, ErrorCode code, int peer) override;
  void close() override;
  void check_peers() override;
  std::shared_ptr<TraceMemory> trace() const override { return roster().membership().trace; }

 private:
  explicit Group(Membership membership) : core_(std::make_shared<Core>(std::move(membership))) {}

  const Roster& roster() const { return core_->roster(); }
  Fabric& fabric() const { return roster().fabric(); }
  std::shared_ptr<Operation> make_operation(Request request);
  void finish_collectives();
  std::uint64_t agree_on_id(const SplitRequest& split);
  std::shared_ptr<Group> make_part(const std::vector<int>& part, Membership membership) const;

  const std::shared_ptr<Core> core_;
};

}  // namespace lockstep::messages
