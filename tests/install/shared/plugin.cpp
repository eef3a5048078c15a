// A plug-in that knows nothing of the program: it adds up a number over the job it finds, and asks for what
// cannot be.
#include <lockstep/comm/collectives/collectives.h>
#include <lockstep/job/job.h>

#include <span>
#include <vector>

extern "C" int plugin_sum(int mine) {
  std::vector<int> number = {mine};
  lockstep::comm::all_reduce(lockstep::world(), std::span(number));
  return number[0];
}

extern "C" void plugin_fails() {
  std::vector<int> number = {1};
  lockstep::comm::broadcast(lockstep::world(), std::span(number), 99);  // there is no rank 99
}
