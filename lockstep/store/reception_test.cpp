// Connections that prove that they know the secret are admitted, whatever others do from the same address.
// One thread plays both sides, so the test controls which data has arrived and been read.
#include "lockstep/store/reception.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/log.h"
#include "lockstep/os/open_files.h"
#include "lockstep/os/tcp_socket.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReceptionTest : public ::testing::Test {
 protected:
  ReceptionTest() {
    raise_open_files();
    set_log_sink([this](LogLevel, const std::string& line) { lines_.push_back(line); });
  }
  ~ReceptionTest() override { set_log_sink({}); }
  ReceptionTest(const ReceptionTest&) = delete;
  ReceptionTest& operator=(const ReceptionTest&) = delete;

  Fd connect() const { return tcp_connect("127.0.0.1", port_, Deadline::in(20s)); }

  // Serves until nothing is left to do.
  void serve() {
    for (bool is_busy = true; is_busy;) {
      PollSet wait;
      reception_.add_to(wait);
      wait.run(Deadline::in(std::chrono::seconds(0)));
      is_busy = !wait.ready().empty();
      for (auto& one : reception_.serve(wait)) admitted_.push_back(opaque_text(one.hello.opaque));
    }
  }

  // Sends the hello, lets it be read, and sends the proof, which stays unread.
  Fd send_proof(const std::string& name) {
    Fd socket = connect();
    ClientHandshake handshake(secret_, {HandshakePurpose::GROUP, 0, opaque_text(name)});
    const auto say = [&] {
      const std::string text = handshake.take_output();
      EXPECT_TRUE(tcp_write_all(socket.get(), std::as_bytes(std::span(text)), Deadline::in(20s)));
    };
    say();
    serve();
    std::array<std::byte, HANDSHAKE_CHALLENGE_BYTES> challenge{};
    EXPECT_TRUE(tcp_read_all(socket.get(), challenge, Deadline::in(20s)));
    handshake.feed(challenge);
    say();
    return socket;
  }

  const Secret secret_ = Secret::random();
  std::vector<std::string> lines_;
  std::vector<std::string> admitted_;
  Fd listener_ = tcp_listen("127.0.0.1", 0);
  const int port_ = tcp_local_address(listener_.get()).port;
  Reception reception_{std::move(listener_), {secret_, HandshakePurpose::GROUP, "rank 3"}};
};

TEST_F(ReceptionTest, AProofThatHasArrivedIsReadBeforeAnybodyGoesForANewerOne) {
  const Fd one = send_proof("friend");
  std::vector<Fd> strangers;
  for (int i = 0; i < 1000; ++i) strangers.push_back(connect());
  EXPECT_THAT(admitted_, ElementsAre());
  serve();
  EXPECT_THAT(admitted_, ElementsAre("friend"));
}

TEST_F(ReceptionTest, WhoHasSaidHelloOutlivesAnyNumberOfSilentOnes) {
  const Fd one = connect();
  ClientHandshake handshake(secret_, {HandshakePurpose::GROUP, 0, opaque_text("slow friend")});
  const std::string hello = handshake.take_output();
  tcp_write_all(one.get(), std::as_bytes(std::span(hello)), Deadline::in(20s));
  serve();
  std::vector<Fd> strangers;
  for (int i = 0; i < 1000; ++i) strangers.push_back(connect());
  serve();
  std::array<std::byte, HANDSHAKE_CHALLENGE_BYTES> challenge{};
  ASSERT_TRUE(tcp_read_all(one.get(), challenge, Deadline::in(20s)));
  handshake.feed(challenge);
  const std::string proof = handshake.take_output();
  tcp_write_all(one.get(), std::as_bytes(std::span(proof)), Deadline::in(20s));
  serve();
  EXPECT_THAT(admitted_, ElementsAre("slow friend"));
}

TEST_F(ReceptionTest, AFloodIsSaidOnce) {
  for (int i = 0; i < 500; ++i) {
    connect().reset();
    if (i % 50 == 0) serve();
  }
  std::vector<Fd> strangers;
  for (int i = 0; i < 500; ++i) strangers.push_back(connect());
  serve();
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("rank 3: refused a connection from 127.0.0.1: it closed"),
                                  HasSubstr("rank 3: too many connections")));
}

}  // namespace
}  // namespace lockstep
