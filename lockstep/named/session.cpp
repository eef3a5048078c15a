#include "lockstep/named/session.h"

#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/job/before_leaving.h"
#include "lockstep/job/groups.h"
#include "lockstep/job/job.h"

namespace lockstep::named {
namespace {

struct Session {
  std::mutex mutex;
  // guarded by mutex
  std::shared_ptr<Engine> engine;
  std::optional<ProcessGroup> group;
  bool joined_the_job = false;
  Places places;
};

Session& here() {
  static auto* const session = new Session;  // outlives static destructors
  return *session;
}

// Stops the engine before its group is closed. Returns whether start() had joined the job.
bool stop_engine() {
  std::shared_ptr<Engine> engine;
  std::optional<ProcessGroup> group;
  bool joined = false;
  {
    const std::lock_guard lock(here().mutex);
    engine.swap(here().engine);
    group.swap(here().group);
    joined = std::exchange(here().joined_the_job, false);
  }
  if (engine != nullptr) engine->stop();
  if (group && is_initialized()) destroy_process_group(*group);
  return joined;
}

Places agreed_places(const ProcessGroup& group) {
  const int mine[2] = {get_node_rank(), get_local_rank()};
  std::vector<int> all(2 * static_cast<std::size_t>(group.size()));
  comm::all_gather(group, std::span<const int>(mine), std::span(all));
  std::vector<std::pair<int, int>> ranks;
  for (std::size_t i = 0; i < all.size(); i += 2) ranks.emplace_back(all[i], all[i + 1]);
  return places_of(ranks, static_cast<std::size_t>(group.rank()));
}

void stop_before_leaving() { stop_engine(); }

}  // namespace

void start(const std::vector<std::vector<int>>& process_sets) {
  if (is_started()) return;
  const bool joins = !is_initialized();
  if (joins) init_process_group();
  const Settings own = settings_of_environment();
  const ProcessGroup group = new_group({.name = "operations by name"});
  static std::once_flag named;  // once in a process, by one rank
  if (group.rank() == 0) std::call_once(named, name_variables_without_counterpart);
  const Places places = agreed_places(group);
  auto engine = std::make_shared<Engine>(group, agreed_settings(group, own));
  {
    const std::lock_guard lock(here().mutex);
    here().engine = engine;
    here().group = group;
    here().joined_the_job = joins;
    here().places = places;
  }
  before_leaving(stop_before_leaving);
  for (const std::vector<int>& ranks : process_sets) engine->add_process_set(ranks);
}

void stop() {
  if (stop_engine() && is_initialized()) destroy_process_group();
}

bool is_started() {
  const std::lock_guard lock(here().mutex);
  return here().engine != nullptr;
}

std::shared_ptr<Engine> engine() {
  const std::lock_guard lock(here().mutex);
  if (here().engine == nullptr)
    throw InvalidArgument("operations by name have not been initialised; call init() first");
  return here().engine;
}

Places places() {
  (void)engine();
  const std::lock_guard lock(here().mutex);
  return here().places;
}

Places places_of(const std::vector<std::pair<int, int>>& ranks, std::size_t rank) {
  Places places{.cross_size = 0};
  std::map<int, int> sizes;  // by machine
  for (const auto& [machine, local] : ranks) {
    ++sizes[machine];
    if (local != ranks[rank].second) continue;
    ++places.cross_size;
    if (machine < ranks[rank].first) ++places.cross_rank;
  }
  for (const auto& [machine, size] : sizes) places.is_homogeneous &= size == sizes.begin()->second;
  return places;
}

}  // namespace lockstep::named
