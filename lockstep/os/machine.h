// Small questions to the machine: its name, random bits, a port nobody uses.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

std::string host_name();

// Names this start of this machine's kernel; containers and network namespaces share it. "" where the kernel
// does not tell.
std::string boot_id();

// 2 * `bytes` hexadecimal digits from the kernel's random generator.
std::string random_hex(std::size_t bytes);

// A TCP port of 127.0.0.1 that was free a moment ago. Nothing keeps it free: it is for programs that insist
// on a number.
int free_port();

// NVIDIA GPUs whose devices exist here.
int gpu_count();

}  // namespace lockstep
