// GuestList: the connections of a listening socket that have not authenticated yet. If there are too many, it
// names the connection to close. Its inputs and outputs are descriptors and addresses; it has no sockets and
// no clock.
//
//   while (const auto fd = guests.in_the_way_of(address)) {
//     ... read from it; if nothing has come, close it and call guests.leave(*fd) ...
//   }
//   guests.enter(fd, address);
//   guests.spoke(fd);                       // its first message was valid and was answered
//
// Each address has its own limit, so a stranger takes no place from other machines. All addresses together
// also have a limit, because one stranger may have many addresses. The connection to close is:
//
//   its address has no place left      the oldest silent one of this address; if none is silent, its oldest
//   there is no place left at all      the oldest silent one of the address with most silent ones; if none is
//                                      silent, the oldest of the address with most
//
// A process of the job sends its first message as soon as it is connected, and proves itself one answer
// later. It is silent only for a moment, so connections that have sent a valid message are closed last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace lockstep {

class GuestList {
 public:
  struct Limits {
    std::size_t of_one_address = 128;
    std::size_t in_all = 384;
  };

  GuestList() : GuestList(Limits()) {}
  explicit GuestList(const Limits& limits) : limits_(limits) {}

  void enter(int fd, const std::string& address);
  void spoke(int fd);
  void leave(int fd);
  std::size_t size() const { return guests_.size(); }

  // The connection to close so that one more of `address` can enter; nullopt if there is a place.
  std::optional<int> in_the_way_of(const std::string& address) const;
  // The connection to close if the process has no descriptor left; nullopt if the list is empty.
  std::optional<int> first_to_go() const;

 private:
  using Place = std::pair<std::uint64_t, int>;  // number of arrival, descriptor
  struct House {
    std::set<Place> silent;
    std::set<Place> spoken;
    std::size_t size() const { return silent.size() + spoken.size(); }
  };
  struct Guest {
    std::uint64_t arrival = 0;
    std::string address;
  };

  Limits limits_;
  std::uint64_t arrived_ = 0;
  std::map<int, Guest> guests_;
  std::map<std::string, House> houses_;  // by address
};

}  // namespace lockstep
