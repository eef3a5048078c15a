// What `lockstep run` is given to start a node of a job that DeepSpeed's launcher describes. Pure.
//
//   run_words({.hosts = hosts, .node = 1, .program = {"./train"}});
//   // --nproc-per-node 2 --nnodes 2 --node-rank 1 --master-addr worker-1 --master-port 29500 ./train
//
// A host whose slots are not 0 to N - 1 sets CUDA_VISIBLE_DEVICES, by env(1) in front of the program.
#pragma once

#include <string>
#include <vector>

#include "cli/deepspeed/hostfile.h"

namespace lockstep::cli {

struct DeepSpeedLaunch {
  std::vector<Host> hosts;
  int node = 0;
  std::string master_addr = {};           // default: the first host
  std::string master_port = "29500";      // used by several hosts
  std::vector<std::string> options = {};  // further ones of lockstep run
  std::vector<std::string> program = {};
};

std::vector<std::string> run_words(const DeepSpeedLaunch& launch);
// "worker-1: lockstep run ...", a line for each node, with words that a shell takes apart as they are.
std::string commands_of_all_nodes(DeepSpeedLaunch launch);

}  // namespace lockstep::cli
