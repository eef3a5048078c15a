#include "lockstep/os/signal_flags.h"

#include <array>
#include <atomic>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr int MOST_SIGNALS = 65;  // Linux counts them from 1 to 64

// A handler can only reach static memory, so a process has one set of flags.
std::array<std::atomic<bool>, MOST_SIGNALS> raised;
std::atomic<bool> is_in_use;
static_assert(std::atomic<bool>::is_always_lock_free, "a handler may not wait");

void raise_flag(int signal) {
  raised[static_cast<std::size_t>(signal)].store(true, std::memory_order_relaxed);
}

}  // namespace

SignalFlags::SignalFlags(std::span<const int> signals) {
  if (is_in_use.exchange(true))
    throw InvalidArgument("another object of this process already catches signals");
  for (const int signal : signals) {
    const bool is_number = signal > 0 && signal < MOST_SIGNALS;
    struct sigaction action = {};
    struct sigaction before = {};
    action.sa_handler = raise_flag;
    action.sa_flags = SA_RESTART;
    if (is_number) clear(signal);
    if (!is_number || sigaction(signal, &action, &before) != 0) {
      restore();
      throw InvalidArgument(str("signal ", signal, " cannot be caught"));
    }
    before_.emplace_back(signal, before);
  }
}

SignalFlags::~SignalFlags() { restore(); }

// In reverse order: a signal that was named twice gets its first disposition back.
void SignalFlags::restore() {
  for (auto entry = before_.rbegin(); entry != before_.rend(); ++entry)
    sigaction(entry->first, &entry->second, nullptr);
  is_in_use = false;
}

bool SignalFlags::is_raised(int signal) {
  return raised.at(static_cast<std::size_t>(signal)).load(std::memory_order_relaxed);
}

void SignalFlags::clear(int signal) {
  raised.at(static_cast<std::size_t>(signal)).store(false, std::memory_order_relaxed);
}

}  // namespace lockstep
