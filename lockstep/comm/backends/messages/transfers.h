// Transfers: the messages of one operation that are under way, and their progress. It also counts the parts
// within the node that a step waits for.
//
//   transfers.send(3, header, data);                 // of this step
//   transfers.send(1, header, more, /*ahead=*/true); // of the next one already
//   ...                                              // step_is_over() when nothing of this step is under way
//   transfers.advance();                             // what was ahead is of this step now
//
// Threads: the fabric's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/comm/backends/messages/transfer.h"

namespace lockstep::messages {

class Core;
class Operation;

// NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor): nothing is derived from it
class Transfers final : public TransferOwner {
 public:
  Transfers(Core* core, Operation& operation) : core_(core), operation_(operation) {}

  void send(int peer, const Header& header, std::span<const std::byte> data, bool ahead = false);
  void receive(Receive receive);
  void add_local() { ++under_way_; }
  void end_local() { over(/*ahead=*/false); }
  bool are_under_way() const { return under_way_ > 0; }
  void advance();

  std::uint64_t progress() const { return progress_; }  // changes whenever a transfer moves or ends
  std::vector<int> receiving_from() const;
  std::vector<int> sending_to() const;
  int source() const { return receives_.front()->peer; }  // source of the only receive

  void drop_sends_to(int rank);  // `rank` is gone
  // The transfers' memory is not touched after this returns.
  void cancel();

  void moved() override;
  void sent(Send& send) override { over(send.ahead); }
  void dropped(Send& send) override;
  void received(Receive& receive) override { over(receive.ahead); }

 private:
  void over(bool ahead);

  Core* const core_;
  Operation& operation_;
  std::vector<std::shared_ptr<Send>> sends_;  // of this step, and those of the next step that are ahead
  std::vector<std::shared_ptr<Receive>> receives_;
  std::size_t under_way_ = 0;  // number of transfers of this step
  std::size_t ahead_ = 0;      // number of transfers of the next step
  std::uint64_t progress_ = 0;
};

}  // namespace lockstep::messages
