// StoreMeeting: ranks on any machines talk over a store before they can communicate.
//
//   StoreMeeting meeting({.store = store, .rank = rank, .size = size, .name = "world/1",
//                         .local_address = tcp_store.local_address().host, .secret = secret.raw()});
//   const std::vector<Message> all = meeting.exchange(my_address, {}, deadline);
//
// In a round every rank sets its text. Rank 0 collects the texts and sets them all as one value. Every other
// rank reads that value and confirms it. Then rank 0 removes the round's keys, so a round leaves nothing in
// the store. Rank 0 returns last, because it may be the process that serves the store.
//
// Who         every rank makes the same calls with the same name, which no other meeting in the store may
//             use. In the first round each rank also records that it has come, and which job it belongs to.
// Fails       Mismatch if another process has come as this rank, or (with is_of_one_job) of another job;
//             Timeout that names the ranks that did not come; PeerLost for a rank whose farewell key
//             (tcp_store.h; meeting_farewell()) was set because its process ended. Every rank that has come
//             and can still reach the store gets the same error. StoreError. A meeting that failed leaves
//             nothing in the store, and the ranks may meet again by the same name (not with is_of_one_job).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/meeting/job_identity.h"
#include "lockstep/comm/meeting/meeting.h"
#include "lockstep/store/store.h"

namespace lockstep {

struct StoreMeetingOptions {
  std::shared_ptr<Store> store;
  int rank = 0;
  int size = 1;
  std::string name;
  std::string local_address = "127.0.0.1";
  std::optional<std::string> secret = {};
  JobFingerprint job = {};      // common to all ranks of the meeting
  JobFingerprint gone_as = {};  // the job in their farewell keys, as it was when they connected to the store
  // The store serves one job only. The record of the ranks that have come then stays, so that no process can
  // come after all have met.
  bool is_of_one_job = false;
  std::string caller = "init_process_group";  // Meeting's
};

// If this key exists, rank `rank` of the job is gone.
std::string meeting_farewell(int rank, const JobFingerprint& job = {});

class StoreMeeting : public Meeting {
 public:
  explicit StoreMeeting(StoreMeetingOptions options);

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  bool passes_descriptors() const override { return false; }
  std::string local_address() const override { return options_.local_address; }
  std::optional<std::string> secret() const override { return options_.secret; }
  std::vector<Message> exchange(const std::string& text, const std::vector<int>& fds,
                                Deadline deadline) override;

 private:
  std::string key(const char* what, int rank) const;
  std::string came(int rank) const;
  std::string told(const std::string& id) const;
  std::vector<int> missing_from(int first) const;
  std::optional<StoreEntry> hear(int rank, Deadline deadline) const;
  std::string collect(const std::string& own, Deadline deadline);
  void publish(const std::string& packet, const std::vector<std::pair<int, std::string>>& heard) const;
  std::string receive(Deadline deadline);
  void come();
  void leave() noexcept;
  std::string farewell(int rank) const { return meeting_farewell(rank, options_.gone_as); }
  [[noreturn]] void give_up(const std::string& failure);
  void remove_round();

  const StoreMeetingOptions options_;
  const std::string self_;  // this process
  const std::string id_;    // of this attempt to meet
  unsigned round_ = 0;
};

}  // namespace lockstep
