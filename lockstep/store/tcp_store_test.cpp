// The TCP store against strangers, and its state when one side ends.
#include "lockstep/store/tcp_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/os/child_process.h"
#include "lockstep/os/open_files.h"
#include "lockstep/os/poll_set.h"
#include "lockstep/store/guest_list.h"
#include "lockstep/store/handshake.h"
#include "lockstep/store/store_desk.h"
#include "lockstep/store/tcp_store_server.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Collects the lines that the library logs while it lives.
class Log {
 public:
  Log() {
    set_log_sink([this](LogLevel, const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    });
  }
  ~Log() { set_log_sink({}); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  std::vector<std::string> with(const std::string& text) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> found;
    std::copy_if(lines_.begin(), lines_.end(), std::back_inserter(found),
                 [&](const std::string& line) { return line.find(text) != std::string::npos; });
    return found;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

class TcpStoreTest : public ::testing::Test {
 protected:
  TcpStore client(const Secret& secret) { return TcpStore(options(secret)); }
  TcpStoreOptions options(const Secret& secret) const {
    return {
        .host = "127.0.0.1", .port = server_.address().port, .secret = secret, .deadline = Deadline::in(20s)};
  }
  Fd stranger() const { return tcp_connect("127.0.0.1", server_.address().port, Deadline::in(20s)); }
  static void say(const Fd& socket, const std::string& text) {
    tcp_write_all(socket.get(), std::as_bytes(std::span(text)), Deadline::in(20s));
  }
  // Reads everything that the server sends until it closes the connection.
  static std::string until_closed(const Fd& socket) {
    std::string said;
    std::array<std::byte, 1> byte{};
    while (tcp_read_all(socket.get(), byte, Deadline::in(20s))) said += static_cast<char>(byte[0]);
    return said;
  }

  Log log_;
  const Secret secret_ = Secret::random();
  TcpStoreServer server_{{.secret = secret_, .address = "127.0.0.1"}};
  TcpStore friend_{options(secret_)};
};

TEST_F(TcpStoreTest, AnotherSecretIsRefusedOnBothSidesAndReportedOnce) {
  for (int i = 0; i < 3; ++i) {
    try {
      client(Secret::random());
      FAIL();
    } catch (const StoreError& error) {
      EXPECT_THAT(error.what(), HasSubstr("secret"));
    }
  }
  friend_.set("key", "value");
  while (log_.with("does it have the secret of this job").empty()) friend_.find("key");
  EXPECT_THAT(log_.with("does it have the secret of this job"), SizeIs(1));
  EXPECT_EQ(friend_.get("key", 20s), "value");
}

TEST_F(TcpStoreTest, AForgedProofIsRefusedAndReportedOnce) {
  for (int i = 0; i < 3; ++i) {
    const Fd socket = stranger();
    ClientHandshake handshake(Secret::random(), {});
    say(socket, handshake.take_output() + std::string(32, 'x'));
    EXPECT_THAT(until_closed(socket), SizeIs(HANDSHAKE_CHALLENGE_BYTES));
  }
  EXPECT_THAT(log_.with("does not know this job's secret"), SizeIs(1));
}

TEST_F(TcpStoreTest, GarbageIsRefusedWithoutAWordAndReportedOnce) {
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(10'000, '\0'), std::string("\xff\xfe")}) {
    const Fd socket = stranger();
    say(socket, garbage);
    EXPECT_EQ(until_closed(socket), "");
  }
  EXPECT_THAT(log_.with("does not speak this protocol"), SizeIs(1));
}

TEST_F(TcpStoreTest, WhoIsAuthenticatedButSendsNonsenseIsDropped) {
  for (const std::string& nonsense :
       {std::string("\xff\xff\xff\xff", 4), std::string("\x0d\0\0\0\x63\0\0\0\0\0\0\0\0\0\0\0\0", 17)}) {
    const Fd socket = stranger();
    authenticate_to_server(socket.get(), secret_, {}, Deadline::in(20s));
    say(socket, nonsense);
    EXPECT_EQ(until_closed(socket), "");
  }
  friend_.set("key", "value");
}

TEST_F(TcpStoreTest, AThousandIdleConnectionsHarmNobody) {
  raise_open_files();
  // Both ends of each connection belong to this process, so fewer fit under a limit of 1,024 files that
  // cannot be raised.
  constexpr std::size_t OTHER_FILES = 64;
  const std::size_t many = std::min<std::size_t>(1000, (open_files().hard - OTHER_FILES) / 2);
  const std::size_t kept = GuestList::Limits().of_one_address;
  std::vector<Fd> idle;
  for (std::size_t i = 0; i < many; ++i) {
    idle.push_back(stranger());
    if (i % 100 == 0) {
      EXPECT_EQ(friend_.add("count", 1), static_cast<long>(i / 100 + 1));
    }
  }
  TcpStore newcomer = client(secret_);
  newcomer.set("key", "value");
  EXPECT_EQ(friend_.get("key", 20s), "value");
  std::size_t open = 0;
  for (const Fd& socket : idle) {
    std::array<std::byte, 1> byte{};
    if (tcp_read(socket.get(), byte) == 0) ++open;
  }
  EXPECT_LE(open, kept);
  EXPECT_THAT(log_.with("too many connections"), SizeIs(1));
  for (const Fd& socket : idle) until_closed(socket);  // the remaining connections also have a time limit
  EXPECT_THAT(log_.with("did not authenticate within"), SizeIs(1));
  friend_.set("key", "still served");
}

// A flooded server may drop a connection before it reads the proof, while the client believes that it was
// accepted. The test does this many times.
TEST_F(TcpStoreTest, AConnectionThatIsCutOffBeforeTheFirstAnswerIsMadeAgain) {
  constexpr int CUT_OFF = 8;
  const Fd listener = tcp_listen("127.0.0.1", 0);
  std::thread flooded([&] {
    for (int i = 0; i <= 2 * CUT_OFF; ++i) {
      PollSet wait;
      wait.want_read(listener.get());
      wait.run(Deadline::in(20s));
      Fd socket = tcp_accept(listener.get()).socket;
      if (i < CUT_OFF) continue;  // before the handshake
      authenticate_client(socket.get(), secret_, HandshakePurpose::STORE, Deadline::in(20s));
      if (i == 2 * CUT_OFF) server_.adopt(std::move(socket));
    }
  });
  TcpStoreOptions with = options(secret_);
  with.port = tcp_local_address(listener.get()).port;
  TcpStore store(with);
  flooded.join();
  store.set("key", "value");
  EXPECT_EQ(friend_.get("key", 20s), "value");
}

TEST_F(TcpStoreTest, AServerThatAlwaysCutsOffIsAnErrorAtTheDeadline) {
  const Fd listener = tcp_listen("127.0.0.1", 0);
  std::atomic<bool> is_over = false;
  std::thread broken([&] {
    while (!is_over) {
      PollSet wait;
      wait.want_read(listener.get());
      wait.run(Deadline::in(20ms));
      tcp_accept(listener.get()).socket.reset();
    }
  });
  TcpStoreOptions with = options(secret_);
  with.port = tcp_local_address(listener.get()).port;
  with.deadline = Deadline::in(300ms);
  EXPECT_THROW(TcpStore{with}, Error);  // dropped again, or too late for another attempt
  EXPECT_LE(with.deadline.remaining(), 200ms) << "it gave up although another attempt was possible";
  is_over = true;
  broken.join();
}

TEST_F(TcpStoreTest, TheServersOwnProcessNeedsNoConnection) {
  auto own = server_.open({.here = "10.0.0.1", .farewell = "gone/0"});
  EXPECT_EQ(own->local_address().host, "10.0.0.1");
  EXPECT_EQ(own->server_address().port, server_.address().port);
  own->set("key", "value");
  EXPECT_EQ(friend_.get("key", 20s), "value");
  std::thread later([&] { friend_.set("later", "1"); });
  EXPECT_TRUE(own->first_of({"later"}, Deadline::in(20s)));
  later.join();
  own.reset();
  EXPECT_TRUE(friend_.first_of({"gone/0"}, Deadline::in(20s)));
}

TEST_F(TcpStoreTest, AWaitThatIsCutOffByTheServersEndIsAnErrorThatNamesIt) {
  auto server =
      std::make_unique<TcpStoreServer>(TcpStoreServerOptions{.secret = secret_, .address = "127.0.0.1"});
  const int port = server->address().port;
  TcpStore store({.host = "127.0.0.1", .port = port, .secret = secret_});
  std::string said;
  std::thread waiting([&] {
    try {
      store.get("never", 60s);
    } catch (const StoreError& error) {
      said = error.what();
    }
  });
  server.reset();
  waiting.join();
  EXPECT_THAT(said, HasSubstr(std::to_string(port)));
  EXPECT_THROW(store.num_keys(), StoreError) << "and from then on";
}

TEST_F(TcpStoreTest, AFarewellKeyTellsThatAProcessIsGone) {
  TcpStoreOptions with = options(secret_);
  with.farewell = "gone/3";
  {
    TcpStore process(with);
    EXPECT_FALSE(friend_.find("gone/3"));
  }
  EXPECT_TRUE(friend_.first_of({"gone/3"}, Deadline::in(20s)));
  TcpStore again(with);
  EXPECT_FALSE(friend_.find("gone/3")) << "it is back";
}

TEST_F(TcpStoreTest, AKilledProcessIsGoneToo) {
  TcpStoreOptions with = options(secret_);
  with.farewell = "gone/1";
  const pid_t child = fork_child([&] {
    TcpStore process(with);
    process.set("here", "1");
    process.get("never", 60s);
    return 0;
  });
  friend_.get("here", 20s);
  signal_process(child, SIGKILL);
  EXPECT_TRUE(friend_.first_of({"gone/1"}, Deadline::in(20s)));
  wait_exit(child);
}

TEST_F(TcpStoreTest, NobodyThereIsATimeout) {
  const int port = tcp_local_address(tcp_listen("127.0.0.1", 0).get()).port;
  EXPECT_THROW(
      TcpStore({.host = "127.0.0.1", .port = port, .secret = secret_, .deadline = Deadline::in(30ms)}),
      Timeout);
}

TEST(TcpStoreProtocol, RequestsAndRepliesComeBackAsTheyWere) {
  const StoreRequest request = {
      StoreOp::COMPARE_SET, -5, {"", std::string("\0a", 2), std::string(70'000, 'x')}};
  std::string buffer = encode(request) + "rest";
  const auto again = take_request(buffer);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->op, request.op);
  EXPECT_EQ(again->number, -5);
  EXPECT_EQ(again->texts, request.texts);
  EXPECT_EQ(buffer, "rest");
}

TEST(TcpStoreProtocol, AnIncompleteFrameIsWaitedFor) {
  const std::string whole = encode(StoreRequest{StoreOp::SET, 0, {"key", "value"}});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    std::string buffer = whole.substr(0, size);
    EXPECT_FALSE(take_request(buffer)) << size;
  }
}

TEST(TcpStoreProtocol, AnyChangedByteIsRefusedOrAnotherRequest) {
  const std::string whole = encode(StoreRequest{StoreOp::SET, 0, {"key", "value"}});
  const std::size_t counts = 4 + 1 + 8;
  for (std::size_t at = counts; at < counts + 8; ++at) {  // the number of texts and the size of the first
    std::string buffer = whole;
    buffer[at] = static_cast<char>(buffer[at] ^ 0x11);
    EXPECT_THROW(take_request(buffer), StoreError) << "byte " << at;
  }
}

TEST(StoreDesk, IsFullAtItsLimitAndSaysSo) {
  StoreDesk desk;
  const std::string large(MAX_STORE_TEXT, 'x');
  std::size_t taken = 0;
  StoreDesk::Answers answers;
  do {
    answers = desk.handle(1, {StoreOp::SET, 0, {std::to_string(taken), large}});
  } while (answers[0].reply.status == StoreStatus::OK && ++taken < 100);
  EXPECT_EQ(taken, StoreDesk::MAX_TABLE_BYTES / MAX_STORE_TEXT - 1);
  EXPECT_THAT(answers[0].reply.texts[0], HasSubstr("full"));
  desk.handle(1, {StoreOp::DELETE_KEY, 0, {"0"}});
  EXPECT_EQ(desk.handle(1, {StoreOp::SET, 0, {"new", large}})[0].reply.status, StoreStatus::OK);
}

}  // namespace
}  // namespace lockstep
