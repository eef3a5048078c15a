#include "lockstep/comm/backends/messages/operation.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/messages/group.h"

namespace lockstep::messages {
namespace {

std::string describe_message(const char* verb, const Request& request, const char* direction) {
  const std::string peer = request.root == ANY_SOURCE ? "any rank" : str("rank ", request.root);
  return str(verb, "(", name_of(request.dtype), "[", request.count, "], ", direction, " ", peer, ", tag ",
             request.tag, ")");
}

template <typename Transfers> std::vector<int> peers_of(const Transfers& transfers) {
  std::vector<int> peers;
  for (const auto& transfer : transfers) {
    if (!transfer->over) peers.push_back(transfer->peer);
  }
  return peers;
}

}  // namespace

Operation::Operation(std::shared_ptr<Group> group, Request request)
    : group_(std::move(group)), request_(std::move(request)) {}

void Operation::wait(std::optional<std::chrono::nanoseconds> timeout) {
  group_->refuse_fork("a wait");
  Session session(group_->fabric());
  group_->wait(session, *this, timeout);
  if (exception_) std::rethrow_exception(exception_);
}

bool Operation::poll() {
  group_->refuse_fork("a test for completion");
  group_->fabric().poll();
  const Session session(group_->fabric());
  if (pending()) group_->announce_after_a_while();
  return !pending();
}

std::exception_ptr Operation::exception() const {
  group_->refuse_fork("a look at an operation");
  const Session session(group_->fabric());
  return exception_;
}

std::vector<int> Operation::receiving_from() const { return peers_of(receives_); }
std::vector<int> Operation::sending_to() const { return peers_of(sends_); }

// Of one that has not begun: what the group does meanwhile.
std::uint64_t Operation::progress() const { return progress_ + (begun_ ? 0 : group_->progress()); }

void Operation::moved() {
  ++progress_;
  group_->count_progress();
}

void Operation::carry_on() {
  if (stepping_) return;
  stepping_ = begun_ = true;
  try {
    while (pending() && under_way_ == 0) step();
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    fail(error);
    group_->give_up(*this, error);
  }
  stepping_ = false;
}

void Operation::post_send(int peer, Header header, std::span<const std::byte> data, bool ahead) {
  if (!pending()) return;
  ++(ahead ? ahead_ : under_way_);
  sends_.push_back(std::make_shared<Send>(Send{this, peer, header, data, ahead}));
  group_->post(sends_.back());
}

void Operation::post_receive(Receive receive) {
  if (!pending()) return;
  ++(receive.ahead ? ahead_ : under_way_);
  receive.owner = this;
  receives_.push_back(std::make_shared<Receive>(receive));
  group_->post(receives_.back(), *this);
}

void Operation::sent(Send& send) { over(send.ahead); }
void Operation::received(Receive& receive) { over(receive.ahead); }

void Operation::over(bool ahead) {
  if (!ahead) return one_less();
  moved();
  --ahead_;
}

void Operation::advance_transfers() {
  const auto is_over = [](const auto& transfer) { return transfer->over; };
  std::erase_if(sends_, is_over);
  std::erase_if(receives_, is_over);
  for (const auto& send : sends_) send->ahead = false;
  for (const auto& receive : receives_) receive->ahead = false;
  under_way_ = std::exchange(ahead_, 0);
}

void Operation::one_less() {
  moved();
  if (--under_way_ == 0 && !stepping_) group_->fabric().ready(shared_from_this());
}

void Operation::drop_sends_to(int rank) {
  for (std::size_t i = 0; i < sends_.size() && pending(); ++i) {
    Send& send = *sends_[i];
    if (send.peer != rank || send.over) continue;
    group_->to(rank).cancel(send);
    send.over = true;
    dropped(send);
  }
}

void Operation::record() { ticket_ = group_->recorder().start(call_of(request_), sequence(), request_.tag); }

void Operation::finish() {
  fail_point("comm.before_finish");
  state_ = State::DONE;
  group_->recorder().finish(ticket_, FlightRecorder::DONE);
  let_go();
}

void Operation::fail(std::exception_ptr exception) {
  if (!pending()) return;
  exception_ = std::move(exception);
  state_ = State::FAILED;
  group_->recorder().finish(ticket_, FlightRecorder::FAILED);
  for (const auto& send : sends_) {
    if (!send->over) group_->to(send->peer).cancel(*send);
  }
  for (const auto& receive : receives_) {
    if (!receive->over) group_->forget(*receive);
  }
  withdraw();
  let_go();
}

void Operation::let_go() {
  sends_.clear();
  receives_.clear();
  request_.keep_alive.reset();
  group_->over(*this);
  group_->fabric().tell_waiters();
}

// ---- messages
SendOperation::SendOperation(std::shared_ptr<Group> group, Request request, std::uint64_t number)
    : Operation(std::move(group), std::move(request)), number_(number) {}

std::string SendOperation::describe() const { return describe_message("send", request_, "to"); }

void SendOperation::step() {
  if (posted_) return finish();
  posted_ = true;
  Header header;
  header.group = group_->id();
  header.sequence = number_;
  header.set(call_of(request_));
  header.label = static_cast<std::uint32_t>(request_.tag);
  const std::size_t bytes = request_.count * size_of(request_.dtype);
  post_send(request_.root, header, {static_cast<const std::byte*>(request_.input), bytes});
}

std::string ReceiveOperation::describe() const { return describe_message("recv", request_, "from"); }

bool ReceiveOperation::needs(int rank) const {
  const auto peers = receiving_from();
  // One that has left and then ended its process is not missed while another may still send.
  const bool died = group_->is_dead(rank) && !group_->has_left(rank);
  return std::any_of(peers.begin(), peers.end(), [&](int peer) {
    return peer == rank || (peer == ANY_SOURCE && (died || group_->everybody_is_gone()));
  });
}

int ReceiveOperation::source_rank() const {
  group_->refuse_fork("a look at an operation");
  const Session session(group_->fabric());
  return source_;
}

void ReceiveOperation::step() {
  if (posted_) {
    source_ = receives_.front()->peer;
    group_->recorder().set_peer(ticket_, source_);
    return finish();
  }
  posted_ = true;
  const std::size_t bytes = request_.count * size_of(request_.dtype);
  post_receive({nullptr,
                request_.root,
                0,
                static_cast<std::uint32_t>(request_.tag),
                {static_cast<std::byte*>(request_.output), bytes}});
}

}  // namespace lockstep::messages
