#include "lockstep/comm/backends/messages/fabric.h"

#include <gtest/gtest.h>

#include <thread>

#include "lockstep/base/running_clock.h"

namespace lockstep::messages {
namespace {

using std::chrono::milliseconds;

// An engine that is polled, in a process that is stopped between two polls, where nothing naps.
class StoppedLinks final : public Links {
 public:
  explicit StoppedLinks(milliseconds stop) : stop_(stop) {}
  std::unique_ptr<Link> link_to(int) override { return nullptr; }
  std::vector<Event> wait(Deadline deadline, bool) override {
    std::this_thread::sleep_for(deadline.remaining() + stop_);
    return {};
  }
  void wake() override {}

 private:
  const milliseconds stop_;
};

TEST(Fabric, AStopAnywhereInAWaitDoesNotCount) {
  constexpr milliseconds STOP = RunningTime::SLACK + milliseconds(400);
  Fabric fabric({.links = std::make_unique<StoppedLinks>(STOP), .peers = {{}}, .memories = {}}, 0);
  fabric.turns().end_turn();  // no thread serves
  const auto stopped = running_time.stopped();
  Session session(fabric);
  fabric.wait(session, Deadline::Clock::now() + milliseconds(10));
  EXPECT_GE(running_time.stopped() - stopped, milliseconds(390));
}

}  // namespace
}  // namespace lockstep::messages
