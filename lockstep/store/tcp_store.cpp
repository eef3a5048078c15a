#include "lockstep/store/tcp_store.h"

#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/pipe.h"
#include "lockstep/os/poll_set.h"
#include "lockstep/store/handshake.h"
#include "lockstep/store/table.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds SERVER_SILENCE{60};
constexpr std::chrono::seconds ONE_HANDSHAKE{10};
constexpr std::chrono::seconds SLACK{10};  // for the answer to a wait that timed out on the server

constexpr std::chrono::milliseconds SHORTEST_WAIT{10};
constexpr std::chrono::milliseconds LONGEST_WAIT{200};

}  // namespace

TcpStore::TcpStore(const TcpStoreOptions& options) : timeout_(options.timeout) {
  for (auto pause = SHORTEST_WAIT;; pause = std::min(2 * pause, LONGEST_WAIT)) {
    try {
      const auto limit = std::min<std::chrono::nanoseconds>(options.deadline.remaining(), ONE_HANDSHAKE);
      connect(options, Deadline::in(limit));
      return;
    } catch (const HandshakeCutOff&) {
      if (options.deadline.remaining() <= pause) throw;
    } catch (const StoreLost&) {
      if (options.deadline.remaining() <= pause) throw;
    } catch (const Timeout&) {
      if (options.deadline.remaining() <= pause) throw;
    }
    nap(pause);
  }
}

TcpStore::TcpStore(Fd connected, TcpAddress server, const LocalStoreOptions& options)
    : timeout_(options.timeout), server_(std::move(server)), socket_(std::move(connected)) {
  local_.host = options.here;
  set_nonblocking(socket_.get());
}

void TcpStore::connect(const TcpStoreOptions& options, Deadline deadline) {
  const HandshakeHello hello = {HandshakePurpose::STORE, 0, opaque_text(options.farewell)};
  socket_ = tcp_connect(options.host, options.port, deadline);
  authenticate_to_server(socket_.get(), options.secret, hello, deadline);
  local_ = tcp_local_address(socket_.get());
  server_ = tcp_peer_address(socket_.get());
  call({StoreOp::NUM_KEYS, 0, {}}, deadline);  // once the server answers, it has removed the farewell key
  tcp_set_liveness(socket_.get(), SERVER_SILENCE);
}

void TcpStore::set(const std::string& key, const std::string& value) {
  check_store_text(key, value);
  call({StoreOp::SET, 0, {key, value}});
}

std::optional<std::string> TcpStore::find(const std::string& key) {
  check_store_text(key);
  StoreReply reply = call({StoreOp::FIND, 0, {key}});
  if (reply.status == StoreStatus::MISSING) return std::nullopt;
  return std::move(reply.texts.at(0));
}

long TcpStore::add(const std::string& key, long amount) {
  check_store_text(key);
  return static_cast<long>(call({StoreOp::ADD, amount, {key}}).number);
}

std::string TcpStore::compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) {
  check_store_text(key, desired);
  check_store_text(key, expected);
  return call({StoreOp::COMPARE_SET, 0, {key, expected, desired}}).texts.at(0);
}

bool TcpStore::delete_key(const std::string& key) {
  check_store_text(key);
  return call({StoreOp::DELETE_KEY, 0, {key}}).number != 0;
}

std::size_t TcpStore::num_keys() { return static_cast<std::size_t>(call({StoreOp::NUM_KEYS, 0, {}}).number); }

std::optional<StoreEntry> TcpStore::first_of(const std::vector<std::string>& keys, Deadline deadline) {
  if (keys.empty()) throw InvalidArgument("store: first_of() needs at least one key");
  for (const std::string& key : keys) check_store_text(key);
  do {
    std::int64_t wait_ms = -1;
    if (!deadline.is_never())
      wait_ms = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
    const Deadline answer = deadline.is_never() ? deadline : Deadline::in(deadline.remaining() + SLACK);
    StoreReply reply = call({StoreOp::FIRST_OF, wait_ms, keys}, answer);
    if (reply.status != StoreStatus::MISSING)
      return StoreEntry{static_cast<std::size_t>(reply.number), std::move(reply.texts.at(0))};
  } while (!deadline.expired());  // the server's clock ran on while this process was stopped, so ask again
  return std::nullopt;
}

StoreReply TcpStore::call(const StoreRequest& request, Deadline deadline) {
  const std::string message = encode(request);
  const std::lock_guard lock(mutex_);
  if (!socket_.valid()) lost(why_lost_);
  std::optional<StoreReply> reply;
  try {
    if (!tcp_write_all(socket_.get(), std::as_bytes(std::span(message)), deadline))
      lost("the connection is over");
    for (std::string buffer; !reply; reply = take_reply(buffer)) {
      std::array<std::byte, 4096> bytes{};
      const long got = tcp_read(socket_.get(), bytes);
      if (got < 0) lost("the connection is over: the process that serves it has ended or cannot be reached");
      buffer.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(got));
      if (got > 0) continue;
      if (deadline.expired()) lost("it does not answer");
      PollSet wait;
      wait.want_read(socket_.get());
      wait.run(deadline);
    }
  } catch (const Timeout& error) {
    lost(error.what());
  }
  if (reply->status == StoreStatus::FAILED)
    throw StoreError(reply->texts.empty() ? "store: refused" : reply->texts[0]);
  return std::move(*reply);
}

// A late reply would be taken for the reply of the next call, so the connection is closed.
void TcpStore::lost(const std::string& why) {
  socket_.reset();
  why_lost_ = why;
  throw StoreLost(str("store at ", text(server_), ": ", why));
}

}  // namespace lockstep
