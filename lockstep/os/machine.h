// Small facts about the machine: its name, random bits, a free port, its GPUs.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

std::string host_name();

// Identifies the current boot of this machine's kernel. Containers and network namespaces share it. "" if the
// kernel does not provide it.
std::string boot_id();

// 2 * `bytes` hexadecimal digits from the kernel's random generator.
std::string random_hex(std::size_t bytes);

// A TCP port of 127.0.0.1 that was free a moment ago. Another process may take it at any time. For programs
// that require a fixed port.
int free_port();

// NVIDIA GPUs that this process may use: /dev/nvidia0, /dev/nvidia1 and so on. A container may have some of
// the machine's. `devices` is the folder of devices.
int gpu_count(const std::string& devices = "/dev");

}  // namespace lockstep
