// Progress: shows a person how training goes. On a terminal it is one line that is overwritten. Otherwise it
// is one plain line per interval, so that a log file stays readable.
//
//   Progress progress(stdout, {.total_steps = steps,
//                              .unit = "images",
//                              .columns = terminal_columns_for_rank_0()});
//   for (std::int64_t step = 0; step < steps; ++step) progress.step(train_step(), batch_size);
//   progress.say("epoch 1: ...");                       // a line of its own
//
//   step 420/938  loss 0.0832  12840 images/s  0:21 left
//
// A run that resumes from a checkpoint passes in `first_step` how many steps were done before it. They count
// in "420/938", but not for the time left, which follows from the speed of this run.
//
// Give all ranks but one a null stream, so that only one shows progress. The library itself never prints, so
// the stream is the caller's.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace lockstep {

// Width of the terminal that rank 0's output goes to, as `lockstep run` reports it. 0 if there is none, and
// on other ranks.
int terminal_columns_for_rank_0();

struct ProgressOptions {
  std::int64_t total_steps = 0;  // of the whole job
  std::int64_t first_step = 0;   // done before this run, which resumes
  // the unit that step() counts: images, tokens, ...
  std::string unit = "samples";
  int columns = 0;                                               // width of the terminal; 0: plain lines
  std::chrono::milliseconds interval = std::chrono::seconds(5);  // between plain lines
};

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  Progress(std::FILE* out, const ProgressOptions& options);

  // Call it after every step. `count` is the number of units that all ranks together have processed in it.
  void step(double loss, std::int64_t count);
  // Shows a whole line, above the progress line if there is one.
  void say(const std::string& line);

 private:
  void show(Clock::time_point now);

  std::FILE* out_;
  const ProgressOptions options_;
  std::int64_t steps_;  // including those done before
  double loss_ = 0;
  // since the last line that was shown
  std::int64_t count_ = 0;
  Clock::time_point started_;
  Clock::time_point shown_;
};

// The text without the carriage return. Pure, for tests.
std::string progress_text(std::int64_t step, std::int64_t total_steps, double loss, double per_second,
                          const std::string& unit, double seconds_left);

}  // namespace lockstep
