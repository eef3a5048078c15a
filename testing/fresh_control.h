// FreshControl: the control segment of a group over shared memory, for a test that plays all ranks itself.
//
//   const FreshControl memory(2);
//   memory.control.rank_line(1).finished.store(3);
#pragma once

#include <memory>

#include "lockstep/comm/backends/segment/layout.h"
#include "lockstep/os/shared_memory.h"

namespace lockstep::testing {

inline std::shared_ptr<SharedMemory> reserved_memory(std::size_t bytes) {
  auto memory = SharedMemory::create(bytes);
  memory->reserve(0, bytes);
  return memory;
}

struct FreshControl {
  explicit FreshControl(int size)
      : memory(reserved_memory(shared::Control::bytes(size))),
        control(memory->data(), size, /*fresh=*/true) {}

  const std::shared_ptr<SharedMemory> memory;
  const shared::Control control;
};

}  // namespace lockstep::testing
