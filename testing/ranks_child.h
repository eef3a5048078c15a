// The side of a RANKS_TEST that runs in the started process: the body, once or on several threads, and what
// becomes of it.
#pragma once

#include "testing/ranks.h"
#include "testing/ranks_processes.h"

namespace lockstep::harness {

// Makes this process a rank: it ends when the watcher does, and its GoogleTest results go to the watcher, not
// to stdout.
void become_child(const ChildPlan& plan);
bool is_child();

// Runs the body as rank is_child() says, or all ranks as threads.
void run_body(const Plan& plan, const std::string& backend, int size, BodyFactory make_body);

// Whether there is NCCL: on a GPU itself (LOCKSTEP_ON_GPU), else the library that stands in for it
// (tests/nccl).
bool has_nccl();
// How many devices ranks over NCCL have between them.
int device_count();

// ---- a process that mpirun or a test of hosts has started (RANKS_TEST_WORLD is its backend)
bool is_in_given_world();
std::string given_world_backend();  // else ""
int given_world_size();
// Only rank 0 prints what passes; all print what fails.
void join_given_world();
void run_in_given_world(const Plan& plan, const std::string& backend, BodyFactory make_body);

}  // namespace lockstep::harness
