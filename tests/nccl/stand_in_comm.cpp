// See stand_in_comm.h.
#include "tests/nccl/stand_in_comm.h"

#include <strings.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <utility>

#include "tests/nccl/stand_in_orders.h"

namespace lockstep::nccl::stand_in {
namespace {

struct Process {
  std::mutex mutex;
  std::map<Comm, std::shared_ptr<Communicator>> by_handle;
  std::uintptr_t last_handle = 0x5000;
  std::string last_error;
};

Process& process() {
  static auto* const instance = new Process;  // threads of the library may outlive main
  return *instance;
}

Comm next_handle() {
  const std::lock_guard lock(process().mutex);
  return reinterpret_cast<Comm>(process().last_handle += 64);
}

}  // namespace

Communicator::Communicator(int rank, int size, bool is_blocking)
    : rank_(rank), size_(size), is_blocking_(is_blocking), handle_(next_handle()) {}

std::shared_ptr<Communicator> Communicator::make(int rank, int size, bool is_blocking) {
  auto comm = std::make_shared<Communicator>(rank, size, is_blocking);
  const std::lock_guard lock(process().mutex);
  process().by_handle.emplace(comm->handle_, comm);
  return comm;
}

std::shared_ptr<Communicator> Communicator::find(Comm handle) {
  const std::lock_guard lock(process().mutex);
  const auto found = process().by_handle.find(handle);
  return found == process().by_handle.end() ? nullptr : found->second;
}

Result Communicator::meet(const UniqueId& id) {
  const Fault fault = OrderBook::of_process().at_init(rank_);
  try {
    if (fault == Fault::INIT_FAIL) {
      throw SharedMemory::Problem{SYSTEM_ERROR, "stand-in: told to fail in init"};
    }
    if (fault != Fault::INIT_HANG) memory_ = std::make_unique<SharedMemory>(id, rank_, size_);
    for (Pause pause; memory_ == nullptr || !memory_->is_complete(); pause()) {
      if (aborted_) throw SharedMemory::Problem{INTERNAL_ERROR, "aborted before all ranks had come"};
    }
  } catch (const SharedMemory::Problem& problem) {
    set_state(problem.result, problem.text);
    return problem.result;
  }
  std::ostringstream line;
  line << "comm " << handle_ << " rank " << rank_ << " nranks " << size_ << " - Init COMPLETE";
  log_info(line.str());
  set_state(SUCCESS);
  return SUCCESS;
}

Result Communicator::state() {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Communicator::set_state(Result state, const std::string& why) {
  if (!why.empty()) note(why);
  const std::lock_guard lock(mutex_);
  state_ = state;
}

void Communicator::postpone(std::function<void()> rest) {
  const std::lock_guard lock(mutex_);
  postponed_ = std::move(rest);
  polls_left_ = 3;
  state_ = IN_PROGRESS;
}

Result Communicator::poll() {
  std::function<void()> rest;
  {
    const std::lock_guard lock(mutex_);
    if (is_finalizing_ && state_ == IN_PROGRESS && is_drained()) state_ = SUCCESS;
    if (!postponed_ || --polls_left_ > 0) return state_;
    rest = std::exchange(postponed_, nullptr);
  }
  rest();
  set_state(SUCCESS);
  return SUCCESS;
}

std::string Communicator::last_error() {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

void Communicator::note(const std::string& message) {
  note_for_process(message);
  const std::lock_guard lock(mutex_);
  last_error_ = message;
}

void Communicator::release() {
  const std::lock_guard lock(process().mutex);
  process().by_handle.erase(handle_);
}

// A peer that has closed its connection takes nothing more.
bool Communicator::is_drained() {
  for (int peer = 0; memory_ != nullptr && peer < size_; ++peer) {
    if (!channel_to(peer).is_empty() && !channel_from(peer).is_dropped()) return false;
  }
  return true;
}

void Communicator::drop_connections() {
  for (int peer = 0; memory_ != nullptr && peer < size_; ++peer) channel_to(peer).drop();
}

void Communicator::finalize() {
  const std::lock_guard lock(mutex_);
  is_finalizing_ = true;
  if (state_ == SUCCESS) state_ = IN_PROGRESS;
}

void Communicator::abort() {
  aborted_ = true;
  for (Pause pause; touching_ != 0; pause()) {
  }
  drop_connections();
  release();
  const std::lock_guard lock(mutex_);
  postponed_ = nullptr;
}

Communicator::Touch::Touch(Communicator& comm) : comm_(comm) { ++comm_.touching_; }
Communicator::Touch::~Touch() { --comm_.touching_; }

void Communicator::await_turn(std::uint64_t turn) {
  for (Pause pause; turns_ended_ != turn && !aborted_; pause()) {
  }
}

std::string last_error_of_process() {
  const std::lock_guard lock(process().mutex);
  return process().last_error;
}

void note_for_process(const std::string& message) {
  log_info(message);
  const std::lock_guard lock(process().mutex);
  process().last_error = message;
}

void log_info(const std::string& text) {
  const char* const level = std::getenv("NCCL_DEBUG");
  if (level == nullptr || strcasecmp(level, "INFO") != 0) return;
  std::array<char, 64> host{};
  gethostname(host.data(), host.size() - 1);
  std::printf("%s:%d:%d [0] NCCL INFO %s\n", host.data(), getpid(), gettid(), text.c_str());
  std::fflush(stdout);
}

void log_version_once() {
  static std::atomic<bool> done = false;
  if (done.exchange(true)) return;
  const int version = OrderBook::of_process().orders().version;
  log_info("NCCL version " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) +
           "." + std::to_string(version % 100) + " (stand-in over host memory)");
}

}  // namespace lockstep::nccl::stand_in
