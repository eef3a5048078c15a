// StoreDesk: the TCP store server's answers to requests. It has the table, and knows which client waits for
// which keys. It has no sockets and no thread of its own.
//
//   for (auto& answer : desk.handle(client, request)) send(answer.client, encode(answer.reply));
//   for (auto& answer : desk.expire()) ...                    // at desk.next_deadline() or before
//   for (auto& answer : desk.leave(client)) ...               // its connection has ended
//
// A client may have a farewell key. The server removes the key when the client comes, and sets it when the
// client leaves.
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
  // Returns the answer to this request, unless it has to wait, and the answers to waits that the request
  // ends.
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
  std::size_t bytes_ = 0;  // size of all keys and values
  std::map<Client, Wait> waiting_;
  std::map<Client, std::string> farewells_;
};

}  // namespace lockstep
