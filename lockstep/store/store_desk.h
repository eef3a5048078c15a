// StoreDesk: how the TCP store's server answers requests: the table, and which client waits for which key.
// No sockets, no clock of its own, one thread.
//
//   for (auto& answer : desk.handle(client, request)) send(answer.client, encode(answer.reply));
//   for (auto& answer : desk.expire()) ...                    // at the latest at desk.next_deadline()
//   for (auto& answer : desk.leave(client)) ...               // its connection has ended
//
// A client may have a farewell key: the key is removed when the client comes and set when it leaves.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/store/table.h"
#include "lockstep/store/tcp_store_protocol.h"

namespace lockstep {

class StoreDesk {
 public:
  using Client = std::uint64_t;
  struct Answer {
    Client client = 0;
    StoreReply reply;
  };
  using Answers = std::vector<Answer>;

  void enter(Client client, const std::string& farewell);
  // The answer to this request unless it has to wait, and those that it brings to an end.
  Answers handle(Client client, const StoreRequest& request);
  Answers leave(Client client);
  Answers expire();
  Deadline next_deadline() const;
  bool is_waiting(Client client) const { return waiting_.count(client) > 0; }

  static constexpr std::size_t MAX_TABLE_BYTES = std::size_t{64} << 20U;

 private:
  struct Wait {
    std::vector<std::string> keys;
    Deadline deadline = Deadline::never();
  };

  void put(const std::string& key, const std::string& value);
  StoreReply apply(const StoreRequest& request);
  std::optional<StoreReply> look(const std::vector<std::string>& keys) const;
  void answer_waiting(const std::string& key, Answers& answers);

  Table table_;
  std::size_t bytes_ = 0;  // of keys and values
  std::map<Client, Wait> waiting_;
  std::map<Client, std::string> farewells_;
};

}  // namespace lockstep
