// Progress: tells a person how training goes. On a terminal one line that is written over; otherwise one
// plain line per interval, so that a log file stays readable.
//
//   Progress progress(stdout, {.total_steps = steps,
//                              .unit = "images",
//                              .columns = terminal_columns_for_rank_0()});
//   for (std::int64_t step = 0; step < steps; ++step) progress.step(train_step(), batch_size);
//   progress.say("epoch 1: ...");                       // a line of its own
//
//   step 420/938  loss 0.0832  12840 images/s  0:21 left
//
// A run that goes on from a checkpoint says with `first_step` how many steps were done before it. They count
// in "420/938" and not in the time left, which is judged by the speed of this run.
//
// Give all ranks but one a null stream: nothing is shown then. A program prints, the library does not: the
// stream is the caller's.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace lockstep {

// What `lockstep run` says about the terminal that rank 0's output goes to; 0 when it is none, or on other
// ranks.
int terminal_columns_for_rank_0();

struct ProgressOptions {
  std::int64_t total_steps = 0;                                  // of the whole job
  std::int64_t first_step = 0;                                   // done before, by the run that goes on here
  std::string unit = "samples";                                  // what step() counts: images, tokens, ...
  int columns = 0;                                               // of the terminal; 0: plain lines
  std::chrono::milliseconds interval = std::chrono::seconds(5);  // between plain lines
};

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  Progress(std::FILE* out, const ProgressOptions& options);

  // After every step; `count` is how many of the unit all ranks together have processed in it.
  void step(double loss, std::int64_t count);
  // A whole line, above the progress line if there is one.
  void say(const std::string& line);

 private:
  void show(Clock::time_point now);

  std::FILE* out_;
  const ProgressOptions options_;
  std::int64_t steps_;  // with those done before
  double loss_ = 0;
  // since the last line that was shown
  std::int64_t count_ = 0;
  Clock::time_point started_;
  Clock::time_point shown_;
};

// The text without the carriage return: a pure function, for tests.
std::string progress_text(std::int64_t step, std::int64_t total_steps, double loss, double per_second,
                          const std::string& unit, double seconds_left);

}  // namespace lockstep
