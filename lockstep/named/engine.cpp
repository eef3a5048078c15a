#include "lockstep/named/engine.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/named/checks.h"
#include "lockstep/named/cycles.h"
#include "lockstep/os/fork_generation.h"

namespace lockstep::named {
namespace {

void check_fork(unsigned made_in) {
  if (fork_generation() != made_in) throw Aborted(std::string(IS_A_FORK));
}

}  // namespace

Engine::Engine(const ProcessGroup& group, const Settings& settings)
    : cycles_(std::make_unique<Cycles>(group, settings)),
      made_in_(fork_generation()),
      thread_([this] { cycles_->run(); }) {}

Engine::~Engine() { stop(); }

std::shared_ptr<Operation> Engine::submit(Submission submission) {
  check_fork(made_in_);
  check(submission, cycles_->process_sets());
  give_name(submission.request);
  auto operation = std::make_shared<Operation>(std::move(submission), cycles_->waiters());
  if (cycles_->inbox().add({operation})) cycles_->wake();
  return operation;
}

Operations Engine::submit_all(std::vector<Submission> submissions) {
  check_fork(made_in_);
  Operations operations;
  for (Submission& submission : submissions) {
    Request& request = submission.request;
    if (request.process_set != submissions.front().request.process_set)
      throw InvalidArgument(str(in_quotes(request.name), ": a group is of one process set"));
    check(submission, cycles_->process_sets());
  }
  for (Submission& submission : submissions) give_name(submission.request);
  const std::string group = submissions.empty() ? "" : submissions.front().request.name;
  for (Submission& submission : submissions) {
    submission.request.group = group;
    submission.request.group_size = static_cast<int>(submissions.size());
    operations.push_back(std::make_shared<Operation>(std::move(submission), cycles_->waiters()));
  }
  if (cycles_->inbox().add(operations)) cycles_->wake();
  return operations;
}

// After all checks, so that a call that one rank refuses leaves the numbers as they are.
void Engine::give_name(Request& request) {
  if (request.name.empty()) request.name = cycles_->inbox().next_name(request.kind, request.process_set);
}

int Engine::add_process_set(const std::vector<int>& ranks) {
  std::string name = "process set of";
  for (const int rank : ranks) name += str(" ", rank);
  Request request{.kind = Kind::ADD_PROCESS_SET, .name = name};
  request.shape.assign(ranks.begin(), ranks.end());
  const auto added = submit({.request = std::move(request)});
  added->wait();
  return added->result().number;
}

void Engine::remove_process_set(int id) {
  submit({.request = {.kind = Kind::REMOVE_PROCESS_SET, .name = str("process set ", id), .root = id}})
      ->wait();
}

const ProcessSets& Engine::process_sets() const { return cycles_->process_sets(); }

void Engine::start_timeline(const std::string& path, bool marks_cycles) {
  if (cycles_->process_sets().all().rank() == 0) cycles_->timeline().start(path, marks_cycles);
}

void Engine::stop_timeline() { cycles_->timeline().stop(); }

void Engine::stop() {
  if (!thread_.joinable()) return;
  if (fork_generation() != made_in_) return thread_.detach();
  cycles_->leave();
  thread_.join();
  cycles_->close_process_sets();
}

}  // namespace lockstep::named
