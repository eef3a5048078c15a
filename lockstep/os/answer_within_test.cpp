#include "lockstep/os/answer_within.h"

#include <gtest/gtest.h>

#include <future>
#include <string>

namespace lockstep {
namespace {

using namespace std::chrono_literals;

TEST(AnswerWithin, BringsTheAnswer) {
  const auto answer = answer_within<std::string>(Deadline::never(), [] { return std::string("here"); });
  EXPECT_EQ(answer, "here");
}

TEST(AnswerWithin, BringsTheError) {
  EXPECT_THROW(answer_within<int>(Deadline::in(20s), []() -> int { throw InvalidArgument("no such name"); }),
               InvalidArgument);
}

// The call does not return until the test has seen the deadline pass.
TEST(AnswerWithin, NobodyWaitsBeyondTheDeadline) {
  std::promise<void> end;
  std::promise<void> ended;
  const auto asked = end.get_future().share();
  const auto shared_end = std::make_shared<std::promise<void>>(std::move(ended));
  const auto answer = answer_within<int>(Deadline::in(20ms), [asked, shared_end] {
    asked.wait();
    shared_end->set_value();
    return 1;
  });
  EXPECT_EQ(answer, std::nullopt);
  const auto over = shared_end->get_future();
  end.set_value();
  EXPECT_EQ(over.wait_for(20s), std::future_status::ready) << "the thread of the call still ends by itself";
}

}  // namespace
}  // namespace lockstep
