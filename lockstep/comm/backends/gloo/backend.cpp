#include "lockstep/comm/backends/gloo/backend.h"

#include <algorithm>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/gloo/library.h"
#include "lockstep/comm/backends/gloo/links.h"
#include "lockstep/comm/backends/modules/library_agreement.h"
#include "lockstep/os/process.h"

namespace lockstep {
namespace {

// All ranks have met when connecting begins, so no rank has a reason to take longer.
constexpr std::chrono::seconds LONGEST_STEP{10};
// A rank that is not connected after this time asks the meeting whether all ranks are still there.
constexpr std::chrono::milliseconds ROUND{100};

std::string as_hex(std::span<const char> bytes) {
  constexpr std::string_view DIGITS = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += DIGITS[value >> 4U];
    text += DIGITS[value & 15U];
  }
  return text;
}

std::vector<char> from_hex(std::string_view text, std::size_t size, int rank) {
  const auto digit = [](char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; };
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (text.size() != 2 * size || !std::all_of(text.begin(), text.end(), is_hex))
    throw StoreError(str("backend \"gloo\": rank ", rank, " announced \"", printable(std::string(text)),
                         "\" instead of an address of Gloo"));
  std::vector<char> bytes;
  for (std::size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<char>(16 * digit(text[i]) + digit(text[i + 1])));
  return bytes;
}

class GlooMesh {
 public:
  GlooMesh(gloo::Module& module, Meeting& meeting, Deadline deadline)
      : module_(module),
        meeting_(meeting),
        deadline_(deadline),
        step_(std::min<std::chrono::nanoseconds>(deadline.remaining(), LONGEST_STEP)) {}

  std::unique_ptr<gloo::Streams> connect() {
    open();
    introduce();
    for (int first = 0; first < size(); first += per_round()) exchange_addresses(first);
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) streams_->connect(r, theirs_.at(static_cast<std::size_t>(r)));
    }
    const Deadline connected = Deadline::in(step_);
    while (!all_are_connected(connected)) {
    }
    return std::move(streams_);
  }

  std::vector<messages::PeerProcess> peers() const { return peers_; }

 private:
  int rank() const { return meeting_.rank(); }
  int size() const { return meeting_.size(); }

  void open() {
    const std::string address = meeting_.local_address();
    gloo::Text error = {};
    streams_.reset(module_.open({.rank = rank(),
                                 .size = size(),
                                 .address = address.c_str(),
                                 .patience = std::chrono::ceil<std::chrono::milliseconds>(step_)},
                                error));
    tell_all(meeting_, "",
             streams_ ? ""
                      : str("backend \"gloo\" cannot listen at ", address, ": ", error.data(),
                            "; set LOCKSTEP_SOCKET_IFNAME to a network interface that the other ranks reach"),
             deadline_);
  }

  void introduce() {
    const std::string mine = str(current_pid(), ' ', meeting_.local_address());
    for (const std::string& text : tell_all(meeting_, mine, "", deadline_)) {
      messages::PeerProcess peer;
      std::istringstream(text) >> peer.pid >> peer.address;
      peer.address = printable(peer.address);
      peers_.push_back(std::move(peer));
      theirs_.emplace_back();
    }
  }

  // Each rank has one address for every other rank, which is more than one message holds.
  std::size_t address_bytes() const {
    return size() < 2 ? 1 : streams_->address_for(rank() == 0 ? 1 : 0).size();
  }
  int per_round() const { return static_cast<int>((MAX_MESSAGE_BYTES - 32) / (2 * address_bytes())); }

  // Exchanges the addresses for ranks first, first + 1, and so on.
  void exchange_addresses(int first) {
    const int last = std::min(size(), first + per_round());
    std::string mine;
    for (int r = first; r < last; ++r)
      mine += r == rank() ? std::string(2 * address_bytes(), '0') : as_hex(streams_->address_for(r));
    const auto all = tell_all(meeting_, mine, "", deadline_);
    if (rank() < first || rank() >= last) return;
    const auto place = static_cast<std::size_t>(rank() - first) * 2 * address_bytes();
    for (int r = 0; r < size(); ++r) {
      const std::string& text = all[static_cast<std::size_t>(r)];
      const std::size_t begin = std::min(place, text.size());
      theirs_[static_cast<std::size_t>(r)] =
          from_hex(std::string_view(text).substr(begin, 2 * address_bytes()), address_bytes(), r);
    }
  }

  int wait_connected(gloo::Text& error) {
    const Nap nap(ROUND);
    return streams_->wait_connected(gloo::TimePoint::clock::now() + ROUND, error);
  }

  // One round, the same on all ranks. Only the meeting knows that a rank has ended; Gloo just finds it not
  // connected.
  bool all_are_connected(Deadline deadline) {
    gloo::Text error = {};
    const int missing = wait_connected(error);
    std::string why = error.data();
    if (why.empty() && deadline.expired())
      why = str("no connection in ", std::chrono::duration<double>(step_).count(), " s");
    bool all = true;
    const auto words = meeting_.exchange(missing < 0 ? "connected" : str(missing, ' ', why), {}, deadline_);
    for (int r = 0; r < size(); ++r) {
      std::istringstream text(words[static_cast<std::size_t>(r)].text);
      int other = -1;
      if (!(text >> other) || other < 0 || other >= size()) continue;
      all = false;
      std::string reason;
      if (std::getline(text >> std::ws, reason)) throw_missing(r, other, reason);
    }
    return all;
  }

  // All ranks come here. The next round finds a rank that ended after it took part in this one.
  [[noreturn]] void throw_missing(int from, int to, const std::string& reason) {
    meeting_.exchange("not connected", {}, deadline_);
    const messages::PeerProcess& peer = peers_[static_cast<std::size_t>(to)];
    throw PeerLost(
        str(meeting_.place(), ": rank ", from, " has no connection to rank ", to, " (pid ", peer.pid, " at ",
            peer.address, "): ", printable(reason),
            "; do they reach each other there? LOCKSTEP_SOCKET_IFNAME chooses another network interface"),
        to == rank() ? from : to);
  }

  gloo::Module& module_;
  Meeting& meeting_;
  const Deadline deadline_;
  const std::chrono::nanoseconds step_;
  std::unique_ptr<gloo::Streams> streams_;
  std::vector<messages::PeerProcess> peers_;
  std::vector<std::vector<char>> theirs_;  // where the other ranks listen for this rank
};

}  // namespace

messages::Connections connect_gloo(Meeting& meeting, const GroupOptions&, Deadline deadline) {
  GlooMesh mesh(open_on_all(meeting, "gloo", gloo::open_library, deadline), meeting, deadline);
  auto streams = mesh.connect();
  return {std::make_unique<gloo::GlooLinks>(std::move(streams), meeting.rank(), meeting.size()),
          mesh.peers()};
}

}  // namespace lockstep
