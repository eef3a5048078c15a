// Operation: a request over NCCL, and the ranks' announcements of it.
//
//   QUEUED --launched--> RUNNING --all ranks agree, and the device has done it--> DONE
//      |                    |
//      +--------------------+--the group fails--> FAILED
//
// Collectives are launched when they are called. Messages stay QUEUED until a rank waits for one of them. All
// are then launched together, so that two ranks that send to each other do not wait for each other.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/call.h"
#include "lockstep/comm/device_streams.h"
#include "lockstep/comm/trace/flight_recorder.h"

namespace lockstep::nccl {

// A rank's announcement of a call: the call and the sizes of its parts, as bytes. All announcements have the
// same length.
class Signature {
 public:
  static std::size_t bytes(int size) {
    return sizeof(Fixed) + static_cast<std::size_t>(size) * sizeof(std::uint64_t);
  }

  Signature() = default;
  Signature(const Request& request, int size);
  explicit Signature(std::span<const std::byte> bytes);
  std::vector<std::byte> pack() const;

  const Call& call() const { return fixed_.call; }
  bool is_like(const Signature& other) const {
    return agree(fixed_.call, other.fixed_.call) && fixed_.is_whole == other.fixed_.is_whole;
  }
  std::uint64_t part_for(int rank) const { return parts_.at(static_cast<std::size_t>(rank)); }
  std::string describe() const;

 private:
  struct Fixed {
    Call call;
    std::uint64_t is_whole = 0;
  };
  Fixed fixed_;
  std::vector<std::uint64_t> parts_;  // ALL_TO_ALL, SCATTER, REDUCE_SCATTER: bytes for each rank; otherwise 0
};

class Core;

class Operation final : public WorkState {
 public:
  Operation(std::shared_ptr<Core> core, Request&& request, std::uint64_t number);

  void wait(std::optional<std::chrono::nanoseconds> timeout) override;
  bool poll() override;
  std::exception_ptr exception() const override;
  int source_rank() const override { return request_.verb == Verb::RECV ? request_.root : -1; }

  const Request& request() const { return request_; }
  std::string describe() const;  // "all_reduce #118"
  Call call() const { return mine_.call(); }
  // Announces the call to the other ranks and receives their announcements; does not wait.
  void announce(Backend& hosts);
  // Whether all ranks whose announcements it waits for have called it. Any thread.
  bool is_agreed() const { return is_agreed_; }
  // Waits for all announcements. Throws Mismatch if a rank called something else, and the errors of the
  // hosts' group.
  void agree();

  // ---- with the core's lock held
  bool is_running() const { return state_ == State::RUNNING; }
  bool is_over() const { return state_ == State::DONE || state_ == State::FAILED; }
  void launched(DeviceStreams::Event end);
  std::shared_ptr<void> finish();  // returns the owner of the buffers, to be released without the lock
  void fail(std::exception_ptr exception);
  const std::exception_ptr& failure() const { return exception_; }

  // The device's event, once the operation was launched. Changes of state after that are the core's own.
  const DeviceStreams::Event& end() const { return end_; }
  const FlightRecorder::Ticket& ticket() const { return ticket_; }
  void keep_record(const FlightRecorder::Ticket& ticket) { ticket_ = ticket; }

 private:
  enum class State { QUEUED, RUNNING, DONE, FAILED };

  void agree_with_sender() const;
  void agree_with_all() const;
  void compare(int rank, const Signature& theirs) const;
  [[noreturn]] void disagree(int rank, const Signature& theirs) const;

  const std::shared_ptr<Core> core_;
  Request request_;
  const std::uint64_t number_;  // counts collectives, or messages
  Signature mine_;
  struct Words {
    std::vector<std::byte> told;
    std::vector<std::byte> heard;
  };
  const std::shared_ptr<Words> words_ =
      std::make_shared<Words>();  // the hosts' group keeps them as long as it needs them
  std::shared_ptr<WorkState> telling_;
  std::atomic<bool> is_agreed_ = false;
  // guarded by the core's lock
  State state_ = State::QUEUED;
  std::exception_ptr exception_;
  DeviceStreams::Event end_;
  FlightRecorder::Ticket ticket_;
};

}  // namespace lockstep::nccl
