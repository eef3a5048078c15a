// Execution: carries out one batch on the group of its process set. Every member calls run() with the same
// batches in the same order; it is used by the engine's thread alone.
//
//   Execution execution(sets, timeline);
//   execution.run(batch, operations);             // operations[i] belongs to batch.responses[i]
//
// A rank that has joined has a null operation: it adds zeros. Fused tensors pass through a buffer in the
// group's shared memory, which grows to the largest batch so far. A tensor alone is reduced where it lies.
//
// Throws as the verbs of comm/. The results of InvalidArgument are the same on every rank.
#pragma once

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "lockstep/named/fusion_plan.h"
#include "lockstep/named/operation.h"
#include "lockstep/named/process_sets.h"
#include "lockstep/named/timeline.h"

namespace lockstep::named {

class Execution {
 public:
  Execution(const ProcessSets& sets, Timeline& timeline) : sets_(sets), timeline_(timeline) {}

  void run(const Batch& batch, const Operations& operations);
  void forget_process_set(int id) { buffers_.erase(id); }

 private:
  struct Buffer {
    std::shared_ptr<void> memory;
    std::size_t bytes = 0;
  };

  void allreduce_alone(const Batch& batch, Operation* operation);
  void allreduce_fused(const Batch& batch, const Operations& operations);
  void allgather(const Response& response, Operation& operation);
  void broadcast(const Response& response, Operation& operation);
  void alltoall(const Response& response, Operation& operation);
  void reducescatter(const Response& response, Operation& operation);
  std::byte* buffer(const ProcessGroup& group, int set, std::size_t bytes);
  void note(const Batch& batch, std::string_view phase, Time begin);

  const ProcessSets& sets_;
  Timeline& timeline_;
  std::map<int, Buffer> buffers_;  // by process set
};

}  // namespace lockstep::named
