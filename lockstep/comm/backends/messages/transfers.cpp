#include "lockstep/comm/backends/messages/transfers.h"

#include <algorithm>
#include <utility>

#include "lockstep/comm/backends/messages/core.h"

namespace lockstep::messages {
namespace {

template <typename List> std::vector<int> peers_of(const List& transfers) {
  std::vector<int> peers;
  for (const auto& transfer : transfers) {
    if (!transfer->over) peers.push_back(transfer->peer);
  }
  return peers;
}

}  // namespace

void Transfers::send(int peer, const Header& header, std::span<const std::byte> data, bool ahead) {
  if (!operation_.is_pending()) return;
  ++(ahead ? ahead_ : under_way_);
  sends_.push_back(std::make_shared<Send>(Send{this, peer, header, data, ahead}));
  core_->post(sends_.back());
}

void Transfers::receive(Receive receive) {
  if (!operation_.is_pending()) return;
  ++(receive.ahead ? ahead_ : under_way_);
  receive.owner = this;
  receive.request = &operation_.request();
  receives_.push_back(std::make_shared<Receive>(receive));
  core_->post(receives_.back(), operation_);
}

std::vector<int> Transfers::receiving_from() const { return peers_of(receives_); }
std::vector<int> Transfers::sending_to() const { return peers_of(sends_); }

void Transfers::moved() {
  ++progress_;
  core_->calls().count_progress();
}

// In a collective, a dropped message counts as over. The operation of send() needs its receiver, which is
// gone.
void Transfers::dropped(Send& send) {
  if (operation_.is_collective()) over(send.ahead);
}

void Transfers::over(bool ahead) {
  moved();
  if (ahead) {
    --ahead_;
  } else if (--under_way_ == 0) {
    operation_.step_is_over();
  }
}

void Transfers::advance() {
  const auto is_over = [](const auto& transfer) { return transfer->over; };
  std::erase_if(sends_, is_over);
  std::erase_if(receives_, is_over);
  for (const auto& send : sends_) send->ahead = false;
  for (const auto& receive : receives_) receive->ahead = false;
  under_way_ = std::exchange(ahead_, 0);
}

// Each call of dropped() may end the operation, which then has no transfers.
void Transfers::drop_sends_to(int rank) {
  for (std::size_t i = 0; i < sends_.size() && operation_.is_pending(); ++i) {
    Send& send = *sends_[i];
    if (send.peer != rank || send.over) continue;
    core_->roster().to(rank).cancel(send);
    send.over = true;
    dropped(send);
  }
}

void Transfers::cancel() {
  for (const auto& send : sends_) {
    if (!send->over) core_->roster().to(send->peer).cancel(*send);
  }
  for (const auto& receive : receives_) {
    if (!receive->over) core_->mailbox().forget(*receive);
  }
  sends_.clear();
  receives_.clear();
}

}  // namespace lockstep::messages
