// fusion_plan: which of the names that are ready are reduced together, and where each lies in the buffer.
//
//   for (const Batch& batch : fusion_plan(negotiation.take_ready(), 128 << 20)) run(batch);
//   std::string table = to_text(fusion_plan(ready, 128 << 20));       // "1: allreduce "a" at 0, "b" at 64"
//
// Names of ALLREDUCE share a batch if process set, dtype, operator and both factors are equal, and the batch
// has at most `threshold` bytes. Each name begins at a multiple of 64 bytes. Every other name is alone, and
// so is one of Adasum, whose factors belong to one tensor. With a threshold of 0 every name is alone. Changes
// of process sets come last.
//
// Pure, and a function of what every rank has alike, so every rank makes the same plan. The result of a name
// does not depend on its batch: sums are made element by element (comm/collectives/all_reduce.h).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/named/negotiation.h"

namespace lockstep::named {

struct Batch {
  std::vector<Response> responses;
  std::vector<std::size_t> offsets = {};  // bytes; one for each response
  std::size_t bytes = 0;                  // of the buffer

  const Request& request() const { return responses.front().request(); }
  bool is_fused() const { return responses.size() > 1; }
};

std::vector<Batch> fusion_plan(std::vector<Response> ready, std::size_t threshold);
std::string to_text(const std::vector<Batch>& plan);

}  // namespace lockstep::named
