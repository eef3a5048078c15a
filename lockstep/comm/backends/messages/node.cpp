#include "lockstep/comm/backends/messages/node.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/os/process.h"

namespace lockstep::messages {
namespace {

// How long a waiting rank waits for the other ranks of a part before it leaves the part to the thread. A
// change to the thread takes a few microseconds.
constexpr std::chrono::microseconds MOMENT{200};
// Limit for all parts together, in bytes. During larger parts a waiting rank had better serve the
// connections.
constexpr std::size_t SMALL_PARTS = std::size_t{1} << 20U;

int index_in(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

// The nodes of a part, as numbers of its own ranks.
algorithms::Nodes nodes_of(const std::vector<int>& part, const algorithms::Nodes& nodes) {
  algorithms::Nodes result;
  std::vector<bool> is_placed(nodes.size());
  for (const int member : part) {
    const auto has_it = [member](const auto& node) {
      return std::find(node.begin(), node.end(), member) != node.end();
    };
    const auto node =
        static_cast<std::size_t>(std::find_if(nodes.begin(), nodes.end(), has_it) - nodes.begin());
    if (is_placed[node]) continue;
    is_placed[node] = true;
    result.emplace_back();
    for (std::size_t r = 0; r < part.size(); ++r) {
      if (index_in(nodes[node], part[r]) < static_cast<int>(nodes[node].size()))
        result.back().push_back(static_cast<int>(r));
    }
  }
  return result;
}

}  // namespace

std::shared_ptr<Node> Node::make(algorithms::Nodes nodes, int rank, std::shared_ptr<Backend> local) {
  const bool is_shared =
      std::any_of(nodes.begin(), nodes.end(), [](const auto& node) { return node.size() > 1; });
  return is_shared ? std::make_shared<Node>(std::move(nodes), rank, std::move(local)) : nullptr;
}

Node::Node(algorithms::Nodes nodes, int rank, std::shared_ptr<Backend> local)
    : nodes_(std::move(nodes)), rank_(rank), state_(std::make_shared<State>()) {
  while (index_in(nodes_.at(mine_), rank) == static_cast<int>(nodes_[mine_].size())) ++mine_;
  state_->local = std::move(local);
}

Node::~Node() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->for_thread.notify_all();
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else if (thread_.joinable()) {
    thread_.join();
  }
}

GroupOptions Node::without_deadlines() {
  constexpr std::chrono::hours LONGEST{24 * 365 * 10};
  return {.timeout = LONGEST, .warn_after = LONGEST};
}

bool Node::is_here(int rank) const { return index_in(ranks(), rank) < static_cast<int>(ranks().size()); }

bool Node::is_small(const Request& request) {
  std::size_t bytes = request.verb == Verb::BROADCAST ? request.count * size_of(request.dtype) : 0;
  for (const auto& part : request.inputs) bytes += part.size();
  for (const auto& part : request.outputs) bytes += part.size();
  return bytes <= SMALL_PARTS;
}

bool Node::post(std::shared_ptr<LocalOwner> owner, Request request, bool caller_waits) {
  const std::lock_guard lock(state_->mutex);
  state_->jobs.push_back({std::move(owner), std::move(request), nullptr});
  if ((state_->helpers > 0 || caller_waits) && is_small(state_->jobs.front().request)) return true;
  wake_thread();
  return false;
}

void Node::wake_thread() {
  if (!thread_.joinable()) thread_ = std::thread([state = state_] { run(*state); });
  state_->for_thread.notify_one();
}

// Aborts the node's group, which also ends the waits of its other ranks. Their operation will fail anyway.
void Node::withdraw(const LocalOwner& owner) {
  std::unique_lock lock(state_->mutex);
  std::erase_if(state_->jobs, [&](const Job& job) { return job.owner.get() == &owner; });
  if (state_->running != &owner) return;
  lock.unlock();
  state_->local->abort("the collective of this local part has failed", ErrorCode::ABORTED, -1);
  lock.lock();
  state_->ended.wait(lock, [&] { return state_->running != &owner; });
}

Node::Job Node::State::begin() {
  Job job = std::move(jobs.front());
  jobs.pop_front();
  running = job.owner.get();
  return job;
}

void Node::end(State& state, const Job& job, const std::exception_ptr& error) {
  {
    const std::lock_guard lock(state.mutex);
    state.running = nullptr;
  }
  state.ended.notify_all();
  job.owner->local_ended(error);
}

void Node::run(State& state) {
  while (true) {
    Job job;
    {
      std::unique_lock lock(state.mutex);
      state.for_thread.wait(lock, [&] { return state.stopping || state.left || state.can_begin(); });
      if (!state.left && !state.can_begin()) return;
      job = state.left ? *std::exchange(state.left, std::nullopt) : state.begin();
    }
    std::exception_ptr error;
    try {
      if (!job.begun) job.begun = state.local->start(std::move(job.request));
      if (job.begun) job.begun->wait(std::nullopt);
    } catch (...) {
      error = std::current_exception();
    }
    end(state, job, error);
  }
}

Node::Helper::Helper(Node& node) : node_(node) {
  const std::lock_guard lock(node_.state_->mutex);
  ++node_.state_->helpers;
}

Node::Helper::~Helper() {
  const std::lock_guard lock(node_.state_->mutex);
  --node_.state_->helpers;
  if (node_.state_->can_begin()) node_.wake_thread();
}

bool Node::Helper::has_work() const {
  const std::lock_guard lock(node_.state_->mutex);
  return node_.state_->can_help();
}

void Node::Helper::work() {
  State& state = *node_.state_;
  while (true) {
    Job job;
    {
      const std::lock_guard lock(state.mutex);
      if (!state.can_help()) {
        if (state.can_begin()) node_.wake_thread();
        return;
      }
      job = state.begin();
    }
    std::exception_ptr error;
    try {
      if (!node_.help_with(job)) return;
    } catch (...) {
      error = std::current_exception();
    }
    end(state, job, error);
  }
}

// Returns true when the job is done, and false when the thread goes on with it.
bool Node::help_with(Job& job) {
  job.begun = state_->local->start(std::move(job.request));
  if (!job.begun) return true;
  const Deadline moment = Deadline::in(MOMENT);
  while (!job.begun->poll()) {
    if (moment.expired()) {
      const std::lock_guard lock(state_->mutex);
      state_->left = std::move(job);
      wake_thread();
      return false;
    }
    yield_cpu();
  }
  job.begun->wait(std::nullopt);
  return true;
}

// A part that lies on this node alone becomes a group over shared memory. Any other part becomes a Node,
// whose group over shared memory has the part's ranks on this node.
Node::Part Node::split(const SplitRequest& split) const {
  std::vector<std::vector<int>> whole;  // parts that lie on this node alone, as ranks of the node
  std::vector<std::vector<int>> mixed;  // of all other parts, the ranks on this node
  const std::vector<int>* own = nullptr;
  bool is_whole = false;
  for (const auto& part : split.parts) {
    std::vector<int> here;
    for (const int member : part) {
      if (is_here(member)) here.push_back(index_in(ranks(), member));
    }
    if (here.empty()) continue;
    const bool all_here = here.size() == part.size();
    if (index_in(part, rank_) < static_cast<int>(part.size())) {
      own = &part;
      is_whole = all_here;
    }
    if (all_here) {
      whole.push_back(std::move(here));
    } else if (here.size() > 1) {
      mixed.push_back(std::move(here));
    }
  }
  const auto& local = state_->local;
  if (!local) {  // this rank is alone on its node
    return own == nullptr || is_whole
               ? Part{}
               : Part{nullptr, make(nodes_of(*own, nodes_), index_in(*own, rank_), nullptr)};
  }
  const auto group_of_whole =
      whole.empty() ? nullptr : local->make_groups({whole, split.name, split.options, split.callers});
  const auto group_of_mixed =
      mixed.empty() ? nullptr
                    : local->make_groups({mixed, split.name + "/node", without_deadlines(), split.callers});
  if (own == nullptr) return {};
  if (is_whole) return {group_of_whole, nullptr};
  return {nullptr, make(nodes_of(*own, nodes_), index_in(*own, rank_), group_of_mixed)};
}

}  // namespace lockstep::messages
