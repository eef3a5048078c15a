// Where the time of a training step goes, on one rank and compared with other ranks. Pure: readings of a
// clock in, seconds out.
//
//   dist::StepTimes times = ddp.stats().last_step;
//   std::cout << to_string(ddp.compare_ranks());              // collective
//
//   rank    between    forward   backward   communication (exposed)   arrived
//      0     1.2 ms    10.1 ms    20.3 ms         18.0 ms ( 9.2 ms)   first
//      1     1.1 ms    18.9 ms    20.2 ms          9.1 ms ( 0.4 ms)   8.8 ms later
//   rank 1 came last, 8.8 ms after rank 0; its forward took 18.9 ms, that of the others 10.1 ms
//
// between        from the end of one average to the next forward: optimiser, loading of data. Time before the
//                first step is not counted. Includes the time between the passes of one step.
// forward        inside forward(), including the broadcast of buffers
// backward       from the end of the last forward to the last gradient, including the loss
// communication  from the start of the first bucket, or the last gradient, until the last average has arrived
// exposed        the part of it that backward did not hide: starting buckets, and waiting after the last
//                gradient
// waited         after the last gradient. The rank that waits least came last, so no clocks are compared.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct StepTimes {  // in seconds
  double between = 0;
  double forward = 0;
  double backward = 0;
  double communication = 0;
  double exposed = 0;
  double waited = 0;
};

// Measures one step after the other. Every call takes one reading of a clock; a step ends with averaged().
class StepClock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  void forward_begins(Time now);
  void forward_ended(Time now);
  void backward_ended(Time now);  // the last gradient of this backward has arrived
  void starting(Time from, Time to);
  void averaged(Time now);
  const StepTimes& last() const { return last_; }

 private:
  double lap(Time now);  // time since the last event

  StepTimes current_;
  StepTimes last_;
  std::optional<Time> last_event_;
  std::optional<Time> first_start_;
  std::optional<Time> last_gradient_;
};

struct RankTimes {
  std::vector<StepTimes> ranks;
  double lag(std::size_t rank) const;  // in seconds after the first rank
  std::size_t last_to_arrive() const;
};

std::string to_string(const RankTimes& times);

}  // namespace lockstep
