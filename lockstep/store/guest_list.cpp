#include "lockstep/store/guest_list.h"

#include <algorithm>

namespace lockstep {

void GuestList::enter(int fd, const std::string& address) {
  guests_[fd] = {++arrived_, address};
  houses_[address].silent.insert({arrived_, fd});
}

void GuestList::spoke(int fd) {
  const Guest& guest = guests_.at(fd);
  House& house = houses_.at(guest.address);
  house.silent.erase({guest.arrival, fd});
  house.spoken.insert({guest.arrival, fd});
}

void GuestList::leave(int fd) {
  const auto guest = guests_.find(fd);
  const auto house = houses_.find(guest->second.address);
  house->second.silent.erase({guest->second.arrival, fd});
  house->second.spoken.erase({guest->second.arrival, fd});
  if (house->second.size() == 0) houses_.erase(house);
  guests_.erase(guest);
}

std::optional<int> GuestList::in_the_way_of(const std::string& address) const {
  const auto own = houses_.find(address);
  if (own != houses_.end() && own->second.size() >= limits_.of_one_address) {
    const House& house = own->second;
    return (house.silent.empty() ? house.spoken : house.silent).begin()->second;
  }
  return guests_.size() >= limits_.in_all ? first_to_go() : std::nullopt;
}

// Compares addresses first by their silent connections, then by all.
std::optional<int> GuestList::first_to_go() const {
  if (guests_.empty()) return std::nullopt;
  const auto has_fewer = [](const auto& a, const auto& b) {
    const std::pair left(a.second.silent.size(), a.second.size());
    return left < std::pair(b.second.silent.size(), b.second.size());
  };
  const House& fullest = std::max_element(houses_.begin(), houses_.end(), has_fewer)->second;
  return (fullest.silent.empty() ? fullest.spoken : fullest.silent).begin()->second;
}

}  // namespace lockstep
