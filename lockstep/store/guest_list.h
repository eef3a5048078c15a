// GuestList: the connections of a listening socket that have not authenticated yet. When there are too many,
// it says which of them to close. No sockets and no clock: descriptors and addresses in, a descriptor out.
//
//   while (const auto fd = guests.in_the_way_of(address)) {
//     ... look whether it has spoken; otherwise close it, guests.leave(*fd) ...
//   }
//   guests.enter(fd, address);
//   guests.spoke(fd);                       // its first message was one of ours, and it was answered
//
// Each address has places of its own, so a stranger takes none from other machines. All addresses together
// have a bounded number of places too, because one stranger may have many addresses. Which connection is
// closed:
//
//   its address has no place left      the oldest silent one of this address; if none is silent, its oldest
//   there is no place left at all      the oldest silent one of the address with most silent ones; if none is
//                                      silent, the oldest of the address with most
//
// A process of the job speaks as soon as it is connected, and proves itself one answer later. It is silent
// for a moment only, so connections that have spoken are closed last.
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

  // Who goes first so that one more of `address` can enter; nullopt when there is a place.
  std::optional<int> in_the_way_of(const std::string& address) const;
  // Who goes first when the process has no descriptor left; nullopt when the list is empty.
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
