#include "lockstep/comm/backends/messages/operation.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/fail_point.h"
#include "lockstep/comm/backends/messages/core.h"
#include "lockstep/comm/backends/messages/wait.h"

namespace lockstep::messages {
namespace {

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

// The operation's record begins with it.
Operation::Operation(std::shared_ptr<Core> core, Request request, std::uint64_t sequence)
    : core_(std::move(core)),
      request_(std::move(request)),
      sequence_(sequence),
      transfers_(core_.get(), *this),
      ticket_(core_ ? core_->recorder().start(call_of(request_), sequence_, request_.tag)
                    : FlightRecorder::Ticket()) {}

void Operation::wait(std::optional<std::chrono::nanoseconds> timeout) {
  core_->roster().refuse_fork("a wait");
  Session session(core_->roster().fabric());
  Wait(*core_, session, *this, timeout).run();
  if (exception_) std::rethrow_exception(exception_);
}

bool Operation::poll() {
  core_->roster().refuse_fork("a test for completion");
  Fabric& fabric = core_->roster().fabric();
  fabric.poll();
  const Session session(fabric);
  if (is_pending()) core_->announce_if_due(Deadline::Clock::now());
  return !is_pending();
}

std::exception_ptr Operation::exception() const {
  core_->roster().refuse_fork("a look at an operation");
  const Session session(core_->roster().fabric());
  return exception_;
}

// An operation that has not begun makes progress when the group does.
std::uint64_t Operation::progress() const {
  return transfers_.progress() + (state_ == State::QUEUED ? core_->calls().progress() : 0);
}

std::string direction_of(const Operation& operation, int rank) {
  if (contains(operation.transfers().receiving_from(), rank)) return ", waiting to receive from it";
  if (contains(operation.transfers().sending_to(), rank)) return ", waiting to send to it";
  if (contains(operation.waiting_in_node(), rank)) return ", waiting for its data in shared memory";
  return "";
}

void Operation::carry_on() {
  if (state_ == State::STEPPING || !is_pending()) return;
  state_ = State::STEPPING;
  try {
    while (is_pending() && !transfers_.are_under_way()) step();
  } catch (...) {
    give_up(std::current_exception());
  }
  if (is_pending()) state_ = State::WAITING;
}

// This rank alone has an error. The other ranks must not wait for its part, so the group fails.
void Operation::give_up(const std::exception_ptr& error) {
  fail(error);
  core_->record(given_up(core_->roster().rank(), describe(), error));
}

// If the last transfer of a step ends within carry_on(), its loop goes on. Otherwise the fabric carries on.
void Operation::step_is_over() {
  if (state_ != State::STEPPING) core_->roster().fabric().ready(shared_from_this());
}

void Operation::finish() {
  fail_point("comm.before_finish");
  end(State::DONE);
}

void Operation::fail(std::exception_ptr exception) {
  if (!is_pending()) return;
  exception_ = std::move(exception);
  end(State::FAILED);
}

void Operation::end(State state) {
  state_ = state;
  core_->recorder().finish(ticket_, state == State::DONE ? FlightRecorder::DONE : FlightRecorder::FAILED);
  transfers_.cancel();
  if (state == State::FAILED) withdraw();
  request_.keep_alive.reset();
  core_->over(*this);
  core_->roster().fabric().turns().note_news();
}

}  // namespace lockstep::messages
