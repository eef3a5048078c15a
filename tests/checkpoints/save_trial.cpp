// A save that is killed or fails at each of its file calls in turn: the checkpoint before it or the new one
// loads, always, and the next save cleans up. Prints what went otherwise; the exit code is how many did.
//
//   save_trial sweep FOLDER                                          one rank; every call, every fault
//   lockstep run -n 2 save_trial once FOLDER RANK CALL FAULT         one save of two ranks
//   lockstep run -n 2 save_trial calls FOLDER FILE                   saves of all kinds; FILE lists their
//   calls lockstep run -n 3 save_trial odd FOLDER                          tensors for python_test.py
//
// SAVE_TRIAL_WITHOUT_EXCHANGE: as on a file system that cannot exchange two names.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/checkpoint/load_checkpoint.h"
#include "lockstep/checkpoint/save_checkpoint.h"
#include "lockstep/job/job.h"
#include "lockstep/os/folder.h"
#include "tests/checkpoints/file_faults.h"

namespace {

using lockstep::str;

constexpr const char* WITHOUT_EXCHANGE = "SAVE_TRIAL_WITHOUT_EXCHANGE";
constexpr int SAVED = 0;
constexpr int REFUSED = 3;  // a named error, and training could go on
constexpr int NOT_REACHED = 10;
constexpr int UNNAMED = 11;

struct Run {
  at::Tensor tensor = at::full({200'000}, 0, at::kFloat);
  int version = 0;
  lockstep::CheckpointState state;

  explicit Run(int v = 0) : version(v) {
    tensor.fill_(v);
    state.add("tensor", tensor).add_value("version", version);
  }
};

void save(const std::string& folder, int version, int step) {
  Run run(version);
  lockstep::save_checkpoint(folder, run.state, {.step = step, .keep_last = 2});
}

// The version that loads, or 0 and why not.
int loaded_version(const std::string& folder, std::string& problem) {
  Run run;
  try {
    lockstep::load_checkpoint(folder, run.state, {.when_damaged = lockstep::WhenDamaged::FAIL});
  } catch (const std::exception& error) {
    problem = error.what();
    return 0;
  }
  if (!run.tensor.eq(run.version).all().item<bool>())
    problem = "the tensor and the value are of two versions";
  return run.version;
}

int save_with_fault(const std::string& folder, int step, int call, FileFault fault) {
  arm_file_fault(folder, call, fault);
  int result = SAVED;
  try {
    save(folder, 2, step);
  } catch (const lockstep::Error& error) {
    result = std::string(error.what()).find(folder) == std::string::npos ? UNNAMED : REFUSED;
  }
  const bool was_reached = file_fault_was_reached();
  arm_file_fault("", 0, FileFault::NONE);
  return was_reached ? result : NOT_REACHED;
}

bool is_clean(const std::string& folder) {
  for (const std::string& name : lockstep::names_in(folder))
    if (name != ".lock" && !name.starts_with("step-")) return false;
  return true;
}

// One trial in a child. Returns false once the fault lies behind the save's last call.
bool trial(const std::string& folder, int step, int call, FileFault fault, int& failures) {
  std::filesystem::remove_all(folder);
  save(folder, 1, 1);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(save_with_fault(folder, step, call, fault));
  int status = 0;
  ::waitpid(child, &status, 0);
  const bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && fault == FileFault::KILL;
  const int result = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::string problem;
  const int version = loaded_version(folder, problem);
  if (result == SAVED && version != 2)
    problem = str("it said that it had saved, and version ", version, " loads");
  if (version != 1 && version != 2 && problem.empty()) problem = str("version ", version, " loads");
  if (result == UNNAMED) problem = "an error that does not name the folder";
  if (!was_killed && result != SAVED && result != REFUSED && result != NOT_REACHED && result != UNNAMED)
    problem = str("it ended with status ", status);
  if (fault == FileFault::SHORT_WRITE && result == REFUSED) problem = "a short write was an error";
  try {
    save(folder, 3, 3);
    if (loaded_version(folder, problem) != 3) problem += "; the next save does not load";
    if (!is_clean(folder)) problem += "; the next save left something behind";
  } catch (const std::exception& error) {
    problem += str("; the next save failed: ", error.what());
  }
  if (!problem.empty()) {
    std::printf("step %d, call %d, fault %d: %s\n", step, call, static_cast<int>(fault), problem.c_str());
    ++failures;
  }
  return result != NOT_REACHED;
}

int sweep(const std::string& folder) {
  int failures = 0;
  int trials = 0;
  for (const FileFault fault : {FileFault::KILL, FileFault::NO_SPACE, FileFault::IO_ERROR,
                                FileFault::INTERRUPTED, FileFault::SHORT_WRITE})
    for (const int step : {1, 2}) {
      if (step == 2 && std::getenv(WITHOUT_EXCHANGE) != nullptr) continue;  // nothing would be exchanged
      int call = 1;
      while (trial(folder, step, call, fault, failures)) ++call;
      trials += call - 1;
    }
  std::printf("%d trials, %d failures\n", trials, failures);
  return trials < 80 ? 1 : failures;  // fewer: the faults do not reach the saves
}

int once(const std::string& folder, int rank, int call, FileFault fault) {
  lockstep::init_process_group();
  if (lockstep::get_rank() == rank) arm_file_fault(folder, call, fault);
  int result = SAVED;
  try {
    save(folder, 2, 2);
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    result = REFUSED;
  }
  arm_file_fault("", 0, FileFault::NONE);
  if (result == REFUSED) save(folder, 3, 3);  // the group is usable
  std::printf("rank %d: %s\n", lockstep::get_rank(), result == SAVED ? "saved" : "refused");
  return 0;
}

// Saves of all kinds: in place of a checkpoint of the same step, a new one, one that sends an old one away.
int calls(const std::string& folder, const std::string& file) {
  lockstep::init_process_group();
  record_file_calls(folder, file);
  const std::string run = folder + "/some/run";
  for (const int step : {1, 1, 2, 3}) save(run, 1 + step, step);
  return 0;
}

// Leaves main while the save is being written.
int leave(const std::string& folder) {
  lockstep::init_process_group();
  static Run run(2);
  lockstep::save_checkpoint_async(folder, run.state, {.step = 2});
  return 0;
}

// Tensors that python_test.py knows by a formula: element i is i modulo 100, in every dtype and shape.
int odd(const std::string& folder) {
  lockstep::init_process_group();
  const std::vector<std::pair<std::string, at::ScalarType>> dtypes = {{"float64", at::kDouble},
                                                                      {"float32", at::kFloat},
                                                                      {"float16", at::kHalf},
                                                                      {"bfloat16", at::kBFloat16},
                                                                      {"int64", at::kLong},
                                                                      {"int32", at::kInt},
                                                                      {"int16", at::kShort},
                                                                      {"int8", at::kChar},
                                                                      {"uint8", at::kByte},
                                                                      {"bool", at::kBool},
                                                                      {"uint16", at::kUInt16},
                                                                      {"uint32", at::kUInt32},
                                                                      {"uint64", at::kUInt64},
                                                                      {"complex64", at::kComplexFloat},
                                                                      {"complex128", at::kComplexDouble},
                                                                      {"float8_e4m3fn", at::kFloat8_e4m3fn},
                                                                      {"float8_e5m2", at::kFloat8_e5m2}};
  const std::vector<std::vector<std::int64_t>> shapes = {{}, {1}, {0}, {41}, {3, 0, 2}, {9, 4}, {2, 3, 4, 5}};
  lockstep::CheckpointState state;
  for (const auto& [name, dtype] : dtypes)
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      std::int64_t count = 1;
      for (const std::int64_t size : shapes[i]) count *= size;
      state.add(str(name, "_", i), at::arange(count, at::kLong).remainder(100).to(dtype).view(shapes[i]));
    }
  const at::Tensor base = at::arange(48, at::kFloat).view({6, 8});
  std::vector<double> values = {0.1, -2};
  state.add("transposed", base.t()).add("base", base).add_value("values", values);
  lockstep::save_checkpoint(folder, state, {.step = 5});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  if (std::getenv(WITHOUT_EXCHANGE) != nullptr) deny_exchange();
  const std::string command = argc > 2 ? argv[1] : "";
  if (command == "sweep") return sweep(argv[2]);
  if (command == "leave") return leave(argv[2]);
  if (command == "calls" && argc > 3) return calls(argv[2], argv[3]);
  if (command == "odd") return odd(argv[2]);
  if (command == "first") return save(argv[2], 1, 1), 0;
  if (command == "load") {
    std::string problem;
    const int version = loaded_version(argv[2], problem);
    std::printf("%d %s\n", version, problem.c_str());
    return problem.empty() ? 0 : 1;
  }
  if (command == "once" && argc > 5)
    return once(argv[2], std::atoi(argv[3]), std::atoi(argv[4]), static_cast<FileFault>(std::atoi(argv[5])));
  std::fprintf(stderr,
               "usage: save_trial sweep|first|load|leave|odd FOLDER, calls FOLDER FILE, or once FOLDER RANK "
               "CALL FAULT\n");
  return 64;
}
