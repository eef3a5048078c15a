#include "lockstep/named/engine.h"

#include <span>

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
  check(submission.request, cycles_->process_sets());
  check_memory(submission.request, submission.input, submission.output);
  give_name(submission.request);
  const auto operation = begun(std::move(submission));
  hand_over(std::span(&operation, 1));
  return operation;
}

std::shared_ptr<Operation> Engine::prepare(Request request) {
  check_fork(made_in_);
  if (request.name.empty() || (request.kind != Kind::ALLREDUCE && request.kind != Kind::BROADCAST))
    throw InvalidArgument(str(name_of(request.kind), " ", in_quotes(request.name),
                              ": an allreduce or a broadcast that has a name can be prepared"));
  check(request, cycles_->process_sets());
  return std::make_shared<Operation>(Submission{.request = std::move(request)}, cycles_->waiters());
}

void Engine::start(const std::shared_ptr<Operation>& operation, const void* input, void* output) {
  check_fork(made_in_);
  const Request& request = operation->request();
  if (!operation->is_of(cycles_->waiters()))
    throw InvalidArgument(str(name_of(request.kind), " ", in_quotes(request.name),
                              ": it was prepared before shutdown(); prepare it again"));
  check_memory(request, input, output);
  if (!operation->begin(input, output)) refuse_second(request);
  hand_over(std::span(&operation, 1));
}

std::shared_ptr<Operation> Engine::begun(Submission submission) const {
  auto operation = std::make_shared<Operation>(std::move(submission), cycles_->waiters());
  operation->begin(operation->input(), operation->output());
  return operation;
}

// If they are refused, they have not begun.
void Engine::hand_over(std::span<const std::shared_ptr<Operation>> operations) {
  try {
    if (cycles_->inbox().add(operations)) cycles_->wake();
  } catch (...) {
    for (const auto& operation : operations) operation->cancel();
    throw;
  }
}

Operations Engine::submit_all(std::vector<Submission> submissions) {
  check_fork(made_in_);
  Operations operations;
  for (Submission& submission : submissions) {
    Request& request = submission.request;
    if (request.process_set != submissions.front().request.process_set)
      throw InvalidArgument(str(in_quotes(request.name), ": a group is of one process set"));
    check(request, cycles_->process_sets());
    check_memory(request, submission.input, submission.output);
  }
  for (Submission& submission : submissions) give_name(submission.request);
  const std::string group = submissions.empty() ? "" : submissions.front().request.name;
  for (Submission& submission : submissions) {
    submission.request.group = group;
    submission.request.group_size = static_cast<int>(submissions.size());
    operations.push_back(begun(std::move(submission)));
  }
  hand_over(operations);
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
