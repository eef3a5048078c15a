// The job in Horovod's words, and sets of its processes.
//
//   hvd::ProcessSet pair({0, 1});
//   hvd::init({pair});                                  // every process of the job
//   if (pair.included()) hvd::allreduce(x, {.process_set = pair});
//   const hvd::ProcessSet more = hvd::add_process_set({0, 2});     // every process, also those outside
//   hvd::remove_process_set(more);
//   hvd::shutdown();
//
// init()       joins the job unless init_process_group() has; shutdown() then leaves it too. init() again may
//              follow. The end of the program does what shutdown() does.
// shutdown()   of one rank ends the operations of all: theirs that are not complete get PeerLost.
// Places       local: on this machine. cross: among the processes that have the same local rank on other
//              machines. is_homogeneous(): every machine has equally many processes.
// Throws       InvalidArgument before init(), and for sets that cannot be.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace lockstep::compat::horovod {

// A small value; copies are the same set.
class ProcessSet {
 public:
  ProcessSet() : state_(std::make_shared<State>(State{.id = 0})) {}  // all processes
  explicit ProcessSet(std::vector<int> ranks)
      : state_(std::make_shared<State>(State{.ranks = std::move(ranks)})) {}

  int process_set_id() const;  // throws InvalidArgument for a set that was not added
  bool is_added() const { return state_->id >= 0; }
  std::vector<int> ranks() const;
  int size() const;
  int rank() const;  // -1 outside
  bool included() const { return rank() >= 0; }

 private:
  friend void init(const std::vector<ProcessSet>& process_sets);
  friend ProcessSet add_process_set(std::vector<int> ranks);
  friend void remove_process_set(const ProcessSet& set);
  struct State {
    std::vector<int> ranks = {};
    int id = -1;
  };
  std::shared_ptr<State> state_;
};

void init(const std::vector<ProcessSet>& process_sets = {});
void shutdown();
bool is_initialized();

int rank();
int size();
int local_rank();
int local_size();
int cross_rank();
int cross_size();
bool is_homogeneous();

ProcessSet add_process_set(std::vector<int> ranks);
void remove_process_set(const ProcessSet& set);

void start_timeline(const std::string& path, bool mark_cycles = false);
void stop_timeline();

}  // namespace lockstep::compat::horovod
