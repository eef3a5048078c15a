#include "lockstep/comm/meeting/same_machine.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/kernel_features.h"
#include "lockstep/os/machine.h"
#include "lockstep/os/private_folder.h"
#include "lockstep/os/process.h"
#include "lockstep/os/shared_memory.h"
#include "lockstep/os/unix_socket.h"

namespace lockstep {
namespace {

constexpr std::size_t PROOF_NONCE_BYTES = 16;
constexpr std::size_t NONCE_TEXT = 2 * PROOF_NONCE_BYTES;
constexpr std::chrono::seconds ONE_STEP{10};
// A rank's report that it is connected to rank 0. Otherwise it reports '-' and the reason.
constexpr const char* CONNECTED = "+";

Deadline step_of(Deadline deadline) {
  return Deadline::in(std::min<std::chrono::nanoseconds>(deadline.remaining(), ONE_STEP));
}

// "RANK PID", the first message of a rank.
struct Hello {
  int rank = -1;
  pid_t pid = 0;
};

Hello parse_hello(const std::string& text) {
  Hello hello;
  const char* const end = text.data() + text.size();
  const auto [space, error] = std::from_chars(text.data(), end, hello.rank);
  if (error != std::errc() || space == end) return {};
  if (std::from_chars(space + 1, end, hello.pid).ec != std::errc()) return {};
  return hello;
}

}  // namespace

SameMachineProof::SameMachineProof(Meeting& meeting) : meeting_(meeting) {
  if (meeting.rank() != 0 || !kernel_has(KernelFeature::MEMFD)) return;
  try {
    const std::string name = "proof-" + random_hex(PROOF_NONCE_BYTES);
    path_ = user_private_folder() + "/" + name;
    listener_ = listen_at(path_);
    offer_ = name;
  } catch (const SystemError&) {
    path_.clear();  // without a common folder there is no proof
  }
}

SameMachineProof::~SameMachineProof() {
  if (!path_.empty()) remove_socket(path_);
}

// Every rank makes both exchanges, also if its connection or its proof failed, so that all come to the same
// result.
std::unique_ptr<Hub> SameMachineProof::run(const std::string& offer_of_rank_0, Deadline deadline) {
  const std::string mine = meeting_.rank() == 0 ? CONNECTED : connect(offer_of_rank_0);
  const std::vector<Message> connected = meeting_.exchange(mine, {}, deadline);
  const bool all_are = std::all_of(connected.begin(), connected.end(),
                                   [](const Message& message) { return message.text == CONNECTED; });
  std::string read;
  if (all_are) read = prove(step_of(deadline));
  const std::vector<Message> all = meeting_.exchange(read, {}, deadline);
  for (const Message& message : all) {
    if (message.text.size() != NONCE_TEXT || message.text != all[0].text) return nullptr;
  }
  auto hub = std::make_unique<Hub>(Hub::over(meeting_.rank(), meeting_.size(), std::move(sockets_)));
  hub->set_caller(meeting_.caller());
  return hub;
}

std::string SameMachineProof::connect(const std::string& offer) {
  try {
    const bool is_name = !offer.empty() && offer.find('/') == std::string::npos;
    std::optional<Fd> socket = is_name ? connect_to(user_private_folder() + "/" + offer) : std::nullopt;
    if (!socket || !send_message(socket->get(), str(meeting_.rank(), ' ', current_pid())))
      return "-not there";
    sockets_.push_back(std::move(*socket));
    return CONNECTED;
  } catch (const SystemError& error) {
    return std::string("-") + error.what();
  }
}

// A rank that cannot do its part says so to the others. It closes its connections, so that none of them waits
// for a proof.
std::string SameMachineProof::prove(Deadline deadline) {
  std::string read;
  try {
    read = meeting_.rank() == 0 ? pass_proofs(deadline) : read_proof(deadline);
  } catch (const SystemError& error) {
    read = std::string("-") + error.what();
  }
  if (read.size() != NONCE_TEXT) {
    sockets_.clear();
    listener_.reset();
  }
  return read;
}

std::string SameMachineProof::pass_proofs(Deadline deadline) {
  const std::string nonce = random_hex(PROOF_NONCE_BYTES);
  const auto memory = SharedMemory::create(nonce.size());
  std::memcpy(memory->data(), nonce.data(), nonce.size());
  sockets_.resize(static_cast<std::size_t>(meeting_.size()));
  for (int joined = 1; joined < meeting_.size(); ++joined) {
    Fd socket = accept_from_same_user(listener_.get(), deadline);
    Message message;
    if (!socket.valid() || receive_message(socket.get(), deadline, message) != Received::MESSAGE) return "";
    const Hello hello = parse_hello(message.text);
    const bool is_known =
        hello.rank > 0 && hello.rank < meeting_.size() && hello.pid == peer_pid(socket.get());
    if (!is_known || sockets_[static_cast<std::size_t>(hello.rank)].valid()) return "";
    send_message(socket.get(), "proof", {memory->fd()});
    sockets_[static_cast<std::size_t>(hello.rank)] = std::move(socket);
  }
  return nonce;
}

std::string SameMachineProof::read_proof(Deadline deadline) {
  Message message;
  if (receive_message(sockets_[0].get(), deadline, message) != Received::MESSAGE || message.fds.size() != 1)
    return "";
  const auto memory = SharedMemory::adopt(std::move(message.fds[0]));
  if (memory->size() != NONCE_TEXT) return "";
  return {reinterpret_cast<const char*>(memory->data()), memory->size()};
}

std::vector<std::vector<int>> ranks_by_text(Meeting& meeting, const std::string& text, Deadline deadline) {
  const std::vector<Message> texts = meeting.exchange(text, {}, deadline);
  std::vector<std::vector<int>> ranks;
  std::vector<std::string> seen;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    const auto found =
        static_cast<std::size_t>(std::find(seen.begin(), seen.end(), texts[r].text) - seen.begin());
    if (found == seen.size()) {
      seen.push_back(texts[r].text);
      ranks.emplace_back();
    }
    ranks[found].push_back(static_cast<int>(r));
  }
  return ranks;
}

std::vector<std::vector<int>> ranks_by_machine(Meeting& meeting, Deadline deadline) {
  const std::string machine =
      str(boot_id(), ' ', user_private_folder_id(), ' ', env("LOCKSTEP_NODE").value_or(""));
  return ranks_by_text(meeting, machine, deadline);
}

int lower_ranks_here(Meeting& meeting, Deadline deadline) {
  const std::vector<Message> machines = meeting.exchange(boot_id(), {}, deadline);
  const auto here = machines.begin() + meeting.rank();
  return static_cast<int>(
      std::count_if(machines.begin(), here, [&](const Message& other) { return other.text == here->text; }));
}

}  // namespace lockstep
