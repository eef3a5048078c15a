// What goes wrong with operations by name: every rank learns of it, by tensor and rank, and nothing hangs.
#include <gmock/gmock.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/named/engine.h"
#include "testing/named_calls.h"
#include "testing/pauser.h"
#include "testing/ranks.h"

namespace lockstep::named {
namespace engine_failures_ranks_test {
namespace {

using harness::named_request;
using harness::NamedSum;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

RANKS_TEST(NamedEngine, MismatchesReachEveryRankAndEndNothing, Ranks(2, 3, 4), Backends("shm", "tcp")) {
  Engine engine(world(), {});
  const bool odd = rank() == size() - 1;
  float data[8] = {};
  const auto says = [&](const char* what, const Request& request) {
    const auto operation = engine.submit({.request = request, .input = data, .output = data});
    EXPECT_THAT([&] { operation->wait(); },
                ThrowsMessage<Mismatch>(AllOf(HasSubstr(request.name), HasSubstr(what))))
        << what;
  };
  says("disagree about shape: rank", named_request(Kind::ALLREDUCE, "shape", {odd ? 2 : 3}));
  says("disagree about dtype:",
       named_request(Kind::ALLREDUCE, "dtype", {2}, odd ? DType::FLOAT32 : DType::INT32));
  says("disagree about operation:", named_request(odd ? Kind::ALLREDUCE : Kind::BROADCAST, "operation", {2}));
  Request request = named_request(Kind::ALLREDUCE, "op", {2});
  request.op = odd ? Op::SUM : Op::MAX;
  says("disagree about operator:", request);
  request = named_request(Kind::ALLREDUCE, "factors", {2});
  request.prescale = odd ? 1 : 2;
  says("disagree about prescale:", request);
  request = named_request(Kind::BROADCAST, "root", {2});
  request.root = odd ? 0 : 1;
  says("disagree about root: rank", request);
  says("shape beyond the first dimension:", named_request(Kind::ALLGATHER, "rows", {2, odd ? 1 : 2}));
  NamedSum fine(engine, "fine", {1});
  EXPECT_THAT(fine.wait(), ElementsAre(size()));
}

RANKS_TEST(NamedEngine, RefusesBeforeAnythingIsSent, Ranks(2)) {
  Engine engine(world(), {});
  if (rank() == 0) {
    float data[4] = {};
    const auto says = [&](const char* what, const Request& request) {
      EXPECT_THAT([&] { engine.submit({.request = request, .input = data, .output = data}); },
                  ThrowsMessage<InvalidArgument>(HasSubstr(what)));
    };
    NamedSum under_way(engine, "a", {1});
    says("an operation with this name is under way", named_request(Kind::ALLREDUCE, "a", {1}));
    says("a scalar has none", named_request(Kind::ALLGATHER, "b", {}));
    says("a scalar has none", named_request(Kind::REDUCESCATTER, "b", {}));
    says("must divide by the 2 ranks, and is 3", named_request(Kind::ALLTOALL, "b", {3}));
    Request request = named_request(Kind::ALLTOALL, "b", {3});
    request.splits = {1, 1};
    says("add up to the first dimension, 3; they add up to 2", request);
    request.splits = {1, 1, 1};
    says("one number for each of the 2 ranks, and have 3", request);
    request = named_request(Kind::BROADCAST, "b", {1});
    request.root = 2;
    says("root 2 is not one of ranks 0, 1", request);
    request = named_request(Kind::REDUCESCATTER, "b", {2});
    request.op = Op::ADASUM;
    says("reducescatter has sum and average alone, not adasum", request);
    says("bool has no average", named_request(Kind::ALLREDUCE, "b", {4}, DType::BOOL));
    EXPECT_THAT(
        [&] {
          engine.add_process_set({1, 0});
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("ascending")));
    EXPECT_THAT([&] { engine.submit({.request = named_request(Kind::ALLREDUCE, "c", {9})}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("9 elements and no memory")));
    NamedSum go(engine, "go", {1});
    EXPECT_THAT(under_way.wait(), ElementsAre(2));
    go.wait();
  } else {
    NamedSum go(engine, "go", {1});  // so that "a" is under way as long as rank 0 looks
    go.wait();
    NamedSum a(engine, "a", {1});
    EXPECT_THAT(a.wait(), ElementsAre(2));
  }
}

RANKS_TEST(NamedEngine, RefusesToStartWhatIsUnderWayOrOfAnotherEngine, Ranks(2)) {
  float data[1] = {1};
  std::shared_ptr<Operation> kept;
  {
    Engine engine(world(), {});
    Request request = named_request(Kind::ALLREDUCE, "a", {1});
    kept = engine.prepare(request);
    EXPECT_TRUE(kept->poll());
    if (rank() == 0) {
      engine.start(kept, data, data);
      const auto refused = [&](const auto& call, const char* what) {
        EXPECT_THAT(call, ThrowsMessage<InvalidArgument>(HasSubstr(what)));
      };
      const auto another = engine.prepare(request);
      refused([&] { engine.start(kept, data, data); }, "an operation with this name is under way");
      refused([&] { engine.start(another, data, data); }, "an operation with this name is under way");
      EXPECT_TRUE(another->poll());
      refused([&] { engine.start(another, nullptr, data); }, "1 elements and no memory");
      request.name.clear();
      refused([&] { engine.prepare(request); }, "that has a name can be prepared");
      refused([&] { engine.prepare(named_request(Kind::ALLGATHER, "b", {1})); }, "can be prepared");
      refused([&] { engine.prepare(named_request(Kind::ALLREDUCE, "b", {-1})); }, "its shape cannot be");
    }
    NamedSum go(engine, "go", {1});  // so that "a" is under way as long as rank 0 looks
    go.wait();
    if (rank() == 1) engine.start(kept, data, data);
    kept->wait();
    EXPECT_EQ(data[0], 1);  // the average
  }
  rejoin();
  Engine engine(world(), {});
  EXPECT_THAT([&] { engine.start(kept, data, data); },
              ThrowsMessage<InvalidArgument>(HasSubstr("prepared before shutdown(); prepare it again")));
}

RANKS_TEST(NamedEngine, AMissingRankIsNamedWithinTheStallTime, Ranks(3)) {
  std::mutex mutex;
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  });
  Settings settings;
  settings.stall_check = std::chrono::milliseconds(300);
  settings.stall_shutdown = std::chrono::milliseconds(900);
  Engine engine(world(), settings);
  // Rank 1 has another name, so both stall.
  NamedSum sum(engine, rank() == 1 ? "theirs" : "ours", {1});
  EXPECT_THAT([&] { sum.wait(); },
              ThrowsMessage<Timeout>(
                  AllOf(HasSubstr("stalled for HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"),
                        HasSubstr("\"ours\" was submitted by ranks 0, 2 and is missing from rank 1"),
                        HasSubstr("\"theirs\" was submitted by rank 1 and is missing from ranks 0, 2"))));
  EXPECT_THAT([&] { NamedSum(engine, "later", {1}); }, ThrowsMessage<Timeout>(HasSubstr("stalled")));
  engine.stop();
  set_log_sink(nullptr);
  const std::lock_guard lock(mutex);
  if (rank() != 0) {
    EXPECT_TRUE(lines.empty());
  } else {
    EXPECT_THAT(
        lines, Contains(AllOf(HasSubstr("stalled for "),
                              HasSubstr("\"ours\" was submitted by ranks 0, 2 and is missing from rank 1"))));
  }
}

// All ranks are stopped for longer than a name may stall, while rank 1 has not announced it.
RANKS_TEST(NamedEngine, APauseOfTheJobIsNoStall, Ranks(2, 3), Backends("shm", "tcp")) {
  const std::vector<int> pids = harness::pids_of(world());
  Settings settings;
  settings.stall_check = std::chrono::milliseconds(0);
  settings.stall_shutdown = std::chrono::seconds(3);
  Engine engine(world(), settings);
  std::optional<harness::Pauser> pauser;
  if (rank() == 0) pauser.emplace(pids, std::chrono::seconds(4));
  if (rank() == 1) harness::compute_over_a_pause(std::chrono::milliseconds(1300));
  NamedSum sum(engine, "late", {1});
  EXPECT_THAT(sum.wait(), ElementsAre(size()));
  pauser.reset();
}

RANKS_TEST(NamedEngine, ALeavingRankEndsAllWithoutWaiting, Ranks(2, 3, 4), Backends("shm", "tcp")) {
  Engine engine(world(), {});
  NamedSum together(engine, "together", {1});
  EXPECT_THAT(together.wait(), ElementsAre(size()));
  if (rank() == 1) {
    engine.stop();
    EXPECT_THAT([&] { NamedSum(engine, "late", {1}); },
                ThrowsMessage<Aborted>(HasSubstr("this rank has called shutdown()")));
    return;
  }
  const auto alone = [&] { NamedSum(engine, "alone", {1}).wait(); };
  EXPECT_THAT(alone, ThrowsMessage<PeerLost>(HasSubstr("rank 1 has called shutdown() or ended")));
  EXPECT_THAT(alone, ThrowsMessage<PeerLost>(HasSubstr("rank 1 has")));
}

RANKS_TEST(NamedEngine, ADeadRankIsNamed, Ranks(3), Backends("shm", "tcp"), Dies({1})) {
  Engine engine(world(), {});
  NamedSum together(engine, "together", {1});
  together.wait();
  if (rank() == 1) die();
  EXPECT_THAT([&] { NamedSum(engine, "alone", {1}).wait(); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1")));
}

// The dead rank's engine has heard of "alone": its thread has exchanged the name with "together" or before.
RANKS_TEST(NamedEngine, ARankIsNamedThatDiesWhileNamesWaitForIt, Ranks(2, 3), Backends("shm", "tcp"),
           Dies({1})) {
  Engine engine(world(), {});
  std::optional<NamedSum> alone;
  if (rank() != 1) alone.emplace(engine, "alone", std::vector<float>{1});
  NamedSum together(engine, "together", {1});
  together.wait();
  if (rank() == 1) die();
  EXPECT_THAT([&] { alone->wait(); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1")));
}

}  // namespace
}  // namespace engine_failures_ranks_test
}  // namespace lockstep::named
