// The engine of this process (engine.h): one for a job, which every interface of named operations uses.
//
//   named::start();                         // joins the job, if nothing has joined it yet
//   named::engine()->submit({.request = request, .input = x, .output = x})->wait();
//   named::stop();                          // leaves the job, if start() joined it
//
// start() is called by every rank, and blocks until all have called. The program and the engine use groups of
// their own, so collectives of the world go on beside it. destroy_process_group() and the end of the program
// stop the engine. start() may follow stop().
//
// Throws  start(): as init_process_group(), and InvalidArgument for a process set that cannot be (checks.h).
//         engine(): InvalidArgument if there is none.
// Threads engine() and is_started(): any.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/named/engine.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC named {

// `process_sets` get the ids 1, 2, ...
void start(const std::vector<std::vector<int>>& process_sets = {});
void stop();
bool is_started();
std::shared_ptr<Engine> engine();

// Where this rank stands among the machines, by Horovod's words. The cross ranks of a process are those that
// have its local rank on other machines. On uneven machines their number depends on the local rank.
struct Places {
  int cross_rank = 0;
  int cross_size = 1;
  bool is_homogeneous = true;  // every machine has equally many ranks
};
Places places();

// Pure: for the rank with this index, from the (machine, local rank) of every rank.
Places places_of(const std::vector<std::pair<int, int>>& ranks, std::size_t rank);

}  // namespace named
}  // namespace lockstep
