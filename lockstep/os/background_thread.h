// become_background_thread: the calling thread works when nobody else wants to. Of a CPU that a computing
// thread fills it gets about a thirtieth, so a training loses at most that; of an idle one it gets all.
//
//   std::thread([] { become_background_thread("checkpoint"); write(); });
//
// Its reads and writes of disks come behind others' where the kernel's I/O scheduler knows priorities.
// `name` is at most 15 characters, as `top -H` shows it. Never fails: where the kernel refuses, all is as
// before.
#pragma once

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

void become_background_thread(const char* name);

}  // namespace lockstep
