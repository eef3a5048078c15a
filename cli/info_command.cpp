// lockstep info: what a bug report needs.
#include <algorithm>
#include <iostream>

#include "cli/commands.h"
#include "cli/parse.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/gloo/library.h"
#include "lockstep/comm/backends/mpi/library.h"
#include "lockstep/comm/backends/nccl/library.h"
#include "lockstep/comm/backends/registry.h"
#include "lockstep/comm/backends/segment/paths.h"
#include "lockstep/job/rendezvous.h"
#include "lockstep/launch/core_plan.h"
#include "lockstep/os/child_process.h"
#include "lockstep/os/cpu_topology.h"
#include "lockstep/os/kernel_features.h"
#include "lockstep/os/machine.h"

namespace lockstep::cli {
namespace {

void print_machine() {
  const CpuTopology machine = cpu_topology();
  std::vector<int> cpus;
  for (const auto& core : machine.cores) cpus.insert(cpus.end(), core.begin(), core.end());
  std::sort(cpus.begin(), cpus.end());
  std::cout << "machine      " << host_name() << ", " << kernel_release() << "\n"
            << "cores        " << machine.cores.size() << " usable (CPUs " << cpu_list(cpus) << ")";
  if (machine.quota) std::cout << ", quota of " << *machine.quota << " CPUs";
  std::cout << "\nGPUs         " << gpu_count() << "\n";
  for (int i = 0; i < KERNEL_FEATURE_COUNT; ++i) {
    const auto feature = static_cast<KernelFeature>(i);
    std::cout << "kernel       " << name_of(feature);
    if (kernel_has(feature)) {
      std::cout << ": yes\n";
    } else {
      std::cout << ": no; instead: " << instead_of(feature) << "\n";
    }
  }
}

// The version of an MPI, or why it cannot be loaded: in a process of its own, because a process has one MPI.
void print_version_of(const mpi::Found& one) {
  std::cout.flush();
  const pid_t child = fork_child([&] {
    try {
      std::cout << mpi::open_library_at(one.path).library() << std::flush;
    } catch (const InvalidArgument& error) {
      std::cout << error.what() << std::flush;
    }
    return 0;
  });
  const ExitStatus status = wait_exit(child);
  if (!status.success()) std::cout << "cannot be loaded: the process that tried " << describe(status);
}

// What backend mpi would load.
void print_mpi() {
  for (const mpi::Found& one : mpi::find_libraries()) {
    std::cout << "MPI          " << one.name << ": ";
    if (one.path.empty()) {
      std::cout << "no module; install its development package and build Lockstep again\n";
      continue;
    }
    print_version_of(one);
    std::cout << ": " << one.path << "\n";
  }
}

void print_nccl() { std::cout << "NCCL         " << nccl::describe_library() << "\n"; }

// What backend gloo would load; it is loaded here, because only then is it known whether that works.
void print_gloo() {
  std::cout << "Gloo         ";
  const std::string path = gloo::find_library();
  if (path.empty()) {
    std::cout << "no module; install libgloo-dev and build Lockstep again\n";
    return;
  }
  try {
    std::cout << gloo::open_library().library() << ": " << path << "\n";
  } catch (const InvalidArgument& error) {
    std::cout << error.what() << "\n";
  }
}

// Which way an all_reduce in shared memory takes, by bytes.
void print_paths() {
  std::cout << "paths        ";
  try {
    std::cout << describe(shared::path_table())
              << (env("LOCKSTEP_PATHS") ? " (LOCKSTEP_PATHS)" : " (what ships)") << "\n";
  } catch (const InvalidArgument& error) {
    std::cout << error.what() << "\n";
  }
}

// How init_process_group() would meet the other ranks if it were called in this environment.
void print_rendezvous() {
  std::cout << "job          ";
  try {
    const RendezvousFacts facts = rendezvous_facts({});
    std::cout << "rank " << facts.place.rank << " of " << facts.place.world_size
              << " (says: " << name_of(facts.place.source) << "); " << describe(plan_rendezvous(facts))
              << "\n";
  } catch (const InvalidArgument& error) {
    std::cout << error.what() << "\n";
  }
}

}  // namespace

int info_command(const std::vector<std::string>& arguments) {
  bool backends_only = false;
  CLI::App app("Version, environment variables and what this machine offers: what a bug report needs.",
               "lockstep info");
  app.add_flag("--backends", backends_only, "only the table of backends and their verbs, in Markdown");
  if (const auto exit_code = parse(app, arguments)) return *exit_code;
  if (backends_only) {
    std::cout << backend_table();
    return 0;
  }
  std::cout << "lockstep     " LOCKSTEP_VERSION ", built with " << __VERSION__ << "\n";
  print_machine();
  for (const BackendInfo& backend : backends()) {
    std::cout << "backend      " << backend.name << ": " << backend.description << "\n";
  }
  print_mpi();
  print_gloo();
  print_nccl();
  print_paths();
  print_rendezvous();
  std::cout << "\nenvironment variables that Lockstep reads or sets\n";
  for (const auto& variable : environment_table()) {
    const auto value = env(variable.name);
    std::cout << "  " << variable.name << (value ? "=" : "") << printable(value.value_or("")) << "\n      "
              << variable.meaning << " (" << variable.set_by << ")\n";
  }
  for (const auto& name : unknown_lockstep_variables()) {
    std::cout << "  " << printable(name) << "\n      is set but not known to this version\n";
  }
  return 0;
}

}  // namespace lockstep::cli
