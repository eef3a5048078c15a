#include "lockstep/checkpoint/save_checkpoint.h"

#include <map>

#include "lockstep/base/str.h"
#include "lockstep/checkpoint/async_save.h"
#include "lockstep/checkpoint/checkpoint_ranks.h"
#include "lockstep/checkpoint/prepared_save.h"
#include "lockstep/checkpoint/write_checkpoint.h"
#include "lockstep/job/before_leaving.h"
#include "lockstep/job/groups.h"

namespace lockstep {
namespace {

std::string call_of(const char* name, const SaveCheckpointOptions& options) {
  return str(name, " of step ", options.step);
}

// Returns a group of the same ranks for the writing thread. It is made once for each group that saves.
std::optional<ProcessGroup> group_of_thread(const std::optional<ProcessGroup>& group) {
  using Groups = std::map<std::weak_ptr<Backend>, ProcessGroup, std::owner_less<>>;
  static auto& made = *new Groups;  // outlives static destructors, as the thread does
  if (!group) return std::nullopt;
  std::erase_if(made, [](const auto& entry) { return entry.first.expired(); });
  const auto found = made.find(group->shared_backend());
  if (found != made.end()) return found->second;
  return made
      .emplace(group->shared_backend(),
               split_group(*group, 0, group->rank(), {.name = group->name() + "/checkpoint"}))
      .first->second;
}

void wait_before_leaving() { AsyncSave::of_this_process().take(); }

}  // namespace

std::string save_checkpoint(const std::string& folder, CheckpointState& state,
                            const SaveCheckpointOptions& options) {
  wait_for_checkpoint();
  const CheckpointRanks ranks(call_of("save_checkpoint", options),
                              checkpoint_group(options.process_group, "save_checkpoint"));
  return write_checkpoint(ranks, prepare_save(ranks, folder, state, options));
}

bool save_checkpoint_async(const std::string& folder, CheckpointState& state,
                           const SaveCheckpointOptions& options, WhenBusy when_busy) {
  AsyncSave& save = AsyncSave::of_this_process();
  const auto group = checkpoint_group(options.process_group, "save_checkpoint_async");
  const CheckpointRanks ranks(call_of("save_checkpoint_async", options), group);
  if (when_busy == WhenBusy::REFUSE) {
    for (const nlohmann::json& is_busy : ranks.all_gather(save.is_writing()))
      if (is_busy.get<bool>()) return false;
  }
  save.take();
  PreparedSave prepared = prepare_save(ranks, folder, state, options);
  ranks.all_try([&] {
    save.copy(prepared);
    return nlohmann::json();
  });
  before_leaving(wait_before_leaving);
  save.begin(CheckpointRanks(ranks.call(), group_of_thread(group)), std::move(prepared));
  return true;
}

bool is_saving_checkpoint() { return AsyncSave::of_this_process().is_writing(); }

void wait_for_checkpoint() { AsyncSave::of_this_process().take(); }

}  // namespace lockstep
