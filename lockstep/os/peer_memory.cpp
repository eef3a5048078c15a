#include "lockstep/os/peer_memory.h"

#include <sys/random.h>
#include <sys/uio.h>

#include <algorithm>
#include <charconv>

#include "lockstep/base/str.h"
#include "lockstep/os/kernel_features.h"

namespace lockstep {
namespace {

// Other processes recognise this process by this number.
std::uint64_t random_number() {
  std::uint64_t number = 0;
  return getrandom(&number, sizeof(number), 0) == sizeof(number) ? number : 0;
}
const std::uint64_t& own_number() {
  static const std::uint64_t number = random_number();
  return number;
}

bool parse(const std::string& text, std::uint64_t& address, std::uint64_t& number) {
  const char* end = text.data() + text.size();
  const auto [colon, error] = std::from_chars(text.data(), end, address);
  if (error != std::errc() || colon == end || *colon != ':') return false;
  const auto [rest, second_error] = std::from_chars(colon + 1, end, number);
  return second_error == std::errc() && rest == end;
}

}  // namespace

std::string PeerMemory::introduction() {
  return str(reinterpret_cast<std::uintptr_t>(&own_number()), ":", own_number());
}

PeerMemory::PeerMemory(pid_t pid, const std::string& introduction) : pid_(pid) {
  std::uint64_t address = 0;
  std::uint64_t number = 0;
  std::uint64_t seen = 0;
  if (!kernel_has(KernelFeature::PEER_MEMORY) || !parse(introduction, address, number)) return;
  can_be_read_ = number != 0 && read(address, std::as_writable_bytes(std::span(&seen, 1))) && seen == number;
}

bool PeerMemory::read(std::uint64_t address, std::span<std::byte> to) const {
  constexpr std::size_t AT_ONCE = std::size_t{1} << 30U;  // the kernel takes less than 2 GiB
  while (!to.empty()) {
    const std::size_t bytes = std::min(to.size(), AT_ONCE);
    const iovec here{to.data(), bytes};
    const iovec there{reinterpret_cast<void*>(address),
                      bytes};  // NOLINT(performance-no-int-to-ptr): of another process
    const ssize_t done = process_vm_readv(pid_, &here, 1, &there, 1, 0);
    if (done <= 0) return false;
    address += static_cast<std::size_t>(done);
    to = to.subspan(static_cast<std::size_t>(done));
  }
  return true;
}

}  // namespace lockstep
