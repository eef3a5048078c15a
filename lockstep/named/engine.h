// Engine: operations that ranks submit in any order, from any thread, and that are matched by name.
//
//   Engine engine(group, agreed_settings(group, settings_of_environment()));   // collective
//   named::Request request{.kind = Kind::ALLREDUCE, .name = "grad.w", .dtype = DType::FLOAT32};
//   request.shape = {count};
//   const auto average = engine.submit({.request = request, .input = w, .output = w});
//   average->wait();
//   engine.stop();
//
// A thread of the engine goes through cycles, which all ranks have in common. In a cycle the ranks tell each
// other their new names; a name that has been there before is one bit. What all ranks have is fused
// (fusion_plan.h) and carried out (execution.h). Every rank decides by itself, with the same result, because
// all ranks know all announcements (negotiation.h).
//
//   IDLE ──(a name for a cycle time; a waiter; another rank's cycle)──> EXCHANGE ──> PLAN ──> RUN ──> IDLE
//                                                                          │
//                          (a rank leaves; a stall; a failure of the group) └──> ENDED
//
// Cycles      begin when the oldest new name has waited for the cycle time, or when a thread waits for an
//             operation. So gradients of a backward pass gather, and a single value does not wait. Over
//             memory that ranks share, an idle engine sleeps; over other backends it looks every cycle time.
// Result      of a name depends on its values alone: not on the order of submissions, not on what it was
//             fused with, not on the cycle. The bits are those of comm/collectives/all_reduce.h.
// Names       an operation without one is numbered: "allreduce.noname.7". Ranks get the same names if they
//             make their nameless calls of a kind and a process set in the same order.
// Groups      submit_all() takes names that run together or not at all.
// Stalls      rank 0 logs which names miss which ranks. After the shutdown time every rank gets a Timeout.
// Fails       submit: InvalidArgument, before anything is sent (checks.h); a name that is still under way on
//             this rank; after the end of the engine, the reason of that end. wait(): Mismatch, which names
//             tensor and ranks and ends nothing else; PeerLost, Timeout, Aborted, which end the engine.
// Threads     any may submit and wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/named/operation.h"
#include "lockstep/named/process_sets.h"
#include "lockstep/named/settings.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC named {

// What the engine's thread has for itself: cycles.h.
class Cycles;

class Engine {
 public:
  // Collective. The engine uses the group alone from now on.
  Engine(const ProcessGroup& group, const Settings& settings);
  ~Engine();  // stop()
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  std::shared_ptr<Operation> submit(Submission submission);
  // The same in two steps, for a name that is submitted again and again: what can be done once is done once.
  // ALLREDUCE or BROADCAST, with a name. start() may follow when the operation has ended, also if it failed.
  std::shared_ptr<Operation> prepare(Request request);
  void start(const std::shared_ptr<Operation>& operation, const void* input, void* output);
  // All of one process set. They get a group and its size, and either all are submitted or none is.
  Operations submit_all(std::vector<Submission> submissions);

  // Blocks until every rank of the job has asked for the same. Returns the id.
  int add_process_set(const std::vector<int>& ranks);
  void remove_process_set(int id);
  const ProcessSets& process_sets() const;

  // Rank 0 writes the file (timeline.h); nothing elsewhere.
  void start_timeline(const std::string& path, bool marks_cycles);
  void stop_timeline();

  // Leaves: tells the other ranks, whose engines end as well. Operations that are not complete fail. No
  // effect the second time.
  void stop();

 private:
  void give_name(Request& request);
  std::shared_ptr<Operation> begun(Submission submission) const;
  void hand_over(std::span<const std::shared_ptr<Operation>> operations);

  const std::unique_ptr<Cycles> cycles_;
  const unsigned made_in_;  // fork_generation()
  std::thread thread_;
};

}  // namespace named
}  // namespace lockstep
