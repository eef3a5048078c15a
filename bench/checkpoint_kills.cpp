// Saves one checkpoint over the other, under the same name, until somebody ends it; and says what loads
// afterwards. For bench/checkpoint_kills.py; the peer is bench/peers/checkpoint_kills.py.
//
//   lockstep run -n 2 build/bench/checkpoint_kills save FOLDER     # FOLDER.saved: how many saves are
//   complete build/bench/checkpoint_kills load FOLDER                       # prints "loads", "mixed", or why
//   not
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/job/job.h"

namespace {

constexpr int TENSORS = 8;
constexpr std::int64_t ROWS = 512, COLUMNS = 1024;  // 2 MiB each

// Every element of every tensor is the version.
struct Run {
  Run() {
    for (int i = 0; i < TENSORS; ++i) {
      tensors.push_back(at::full({ROWS, COLUMNS}, 0, at::kFloat));
      state.add("t" + std::to_string(i), tensors.back());
    }
  }
  std::vector<at::Tensor> tensors;
  lockstep::CheckpointState state;
};

void save(const std::string& folder) {
  lockstep::init_process_group();
  Run run;
  for (int version = 1;; ++version) {
    for (at::Tensor& tensor : run.tensors) tensor.fill_(version);
    lockstep::save_checkpoint(folder, run.state, {.step = 1});
    if (lockstep::get_rank() == 0) std::ofstream(folder + ".saved") << version;
  }
}

std::string load(const std::string& folder) {
  Run run;
  try {
    lockstep::load_checkpoint(folder, run.state, {.when_damaged = lockstep::WhenDamaged::FAIL});
  } catch (const lockstep::Error& error) {
    return error.what();
  }
  const at::Scalar version = run.tensors.front().flatten()[0].item();
  for (const at::Tensor& tensor : run.tensors)
    if (!tensor.eq(version).all().item<bool>()) return "mixed";
  return "loads";
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const std::string word = argc == 3 ? argv[1] : "";
  if (word == "save") save(argv[2]);
  if (word != "load") return 64;
  std::puts(load(argv[2]).c_str());
  return 0;
}
