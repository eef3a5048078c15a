// CheckpointRanks: how the ranks of a save or a load exchange facts and fail together: an error on one rank
// is thrown by all of them. Used by this room only.
//
//   CheckpointRanks ranks("save_checkpoint of step 1200", group);
//   const nlohmann::json plan = ranks.on_rank_0([&] { return make_folder_and_say_its_name(); });
//   ranks.all_try([&] { write_my_part(plan); });          // returns on all ranks or throws on all
//
// Collective  each function, on every rank. Without a group this process is alone and nothing is sent.
// Throws      the failure of the lowest rank that has one, with its type, its errno, and the words "rank 1 of
//             2: …"; and the errors of the group's collectives.
#pragma once

#include <exception>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

class CheckpointRanks {
 public:
  CheckpointRanks(std::string call, std::optional<ProcessGroup> group);

  int rank() const { return group_ ? group_->rank() : 0; }
  int size() const { return group_ ? group_->size() : 1; }
  const std::string& call() const { return call_; }

  // By rank, on every rank.
  std::vector<nlohmann::json> all_gather(const nlohmann::json& mine) const;
  // Runs `act` on every rank. Returns each rank's result, on every rank.
  std::vector<nlohmann::json> all_try(const std::function<nlohmann::json()>& act) const;
  // Runs `act` on rank 0. Returns its result, on every rank.
  nlohmann::json on_rank_0(const std::function<nlohmann::json()>& act) const;

 private:
  nlohmann::json failure_of(const std::exception& error) const;
  [[noreturn]] void throw_failure(const nlohmann::json& failure) const;

  std::string call_;
  std::optional<ProcessGroup> group_;
};

// Returns the group of a call: the given one, else the world, or none in a process without a job. Throws
// InvalidArgument in a process outside of it.
std::optional<ProcessGroup> checkpoint_group(const std::optional<ProcessGroup>& given, std::string_view call);

}  // namespace lockstep
