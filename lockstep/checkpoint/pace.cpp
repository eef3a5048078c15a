#include "lockstep/checkpoint/pace.h"

namespace lockstep {
namespace {

constexpr int PAUSES_PER_WORK = 3;
constexpr std::chrono::milliseconds LEAST = std::chrono::milliseconds(1);  // shorter ones are saved up

}  // namespace

void Pace::begin() {
  const std::lock_guard lock(mutex_);
  is_hurried_ = false;
}

void Pace::resume() { worked_since_ = std::chrono::steady_clock::now(); }

bool Pace::pause() {
  const auto worked = std::chrono::steady_clock::now() - worked_since_;
  if (worked < LEAST) return true;
  std::unique_lock lock(mutex_);
  const bool was_hurried = hurried_.wait_for(lock, PAUSES_PER_WORK * worked, [&] { return is_hurried_; });
  resume();
  return !was_hurried;
}

void Pace::hurry() {
  const std::lock_guard lock(mutex_);
  is_hurried_ = true;
  hurried_.notify_all();
}

}  // namespace lockstep
