// The module of one MPI: see mpi/module.h. Compiled by mpicxx.openmpi and by mpicxx.mpich, not part of the
// library. NOLINTBEGIN: the two MPIs define the same names as pointers, as numbers and as macros of casts
#include "lockstep/comm/backends/mpi/module.h"

#include <mpi.h>

#include <array>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/comm/backends/mpi/calls.h"
#include "lockstep/comm/backends/mpi/tagged_streams.h"
#include "lockstep/comm/backends/mpi/until_deadline.h"

namespace lockstep::mpi {
namespace {

constexpr std::chrono::seconds FAREWELL{5};
constexpr std::chrono::seconds SETTLING{1};

bool no_farewell = false;  // guarded by calls()

std::vector<MPI_Comm>& duplicates() {  // guarded by calls()
  static auto* const instance = new std::vector<MPI_Comm>;
  return *instance;
}

// Kept until the process ends. Freeing it would be collective, and a rank that failed takes no part.
class OwnCommunicator final : public Communicator {
 public:
  explicit OwnCommunicator(MPI_Comm comm) : comm_(comm) {
    const std::lock_guard lock(calls());
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    duplicates().push_back(comm_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Streams> open(int tag, const std::vector<int>& ranks) override {
    return std::make_unique<TaggedStreams>(comm_, tag, ranks, rank_);
  }

 private:
  const MPI_Comm comm_;
  int rank_ = 0;
  int size_ = 1;
};

const char* name_of_level(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE: return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED: return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED: return "MPI_THREAD_SERIALIZED";
    default: return "MPI_THREAD_MULTIPLE";
  }
}

void call_no_more() {
  const std::lock_guard lock(calls());
  over = true;
}

// Returns whether `is_done` was true before the deadline. It is called with the lock held.
template <class IsDone> bool wait_until(Patience& patience, const IsDone& is_done) {
  while (true) {
    {
      const std::lock_guard lock(calls());
      if (is_done()) return true;
    }
    if (!patience.rest()) return false;
  }
}

// When all ranks have come here, everything sent has arrived. Returns false if they have not come by the
// deadline.
bool wait_for_all(Deadline deadline) {
  std::vector<MPI_Request> requests(duplicates().size(), MPI_REQUEST_NULL);
  {
    const std::lock_guard lock(calls());  // another thread may be closing a group
    for (std::size_t i = 0; i < requests.size(); ++i) MPI_Ibarrier(duplicates()[i], &requests[i]);
  }
  UntilDeadline patience(deadline);
  return wait_until(patience, [&] {
    int done = 0;
    const int code =
        MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    return done != 0 || code != MPI_SUCCESS;
  });
}

// MPI_Finalize must find no receive that is still posted. Open MPI would write into memory that it has freed.
void settle() {
  bool first = true;
  UntilDeadline patience(Deadline::in(SETTLING));
  wait_until(patience, [&] {
    if (std::exchange(first, false)) TaggedStreams::close_all();
    return TaggedStreams::are_settled();
  });
  const std::lock_guard lock(calls());
  finalized = true;
}

// MPI_Finalize waits for all ranks, as long as their work takes. If a group has failed, that may be for ever,
// so the job is ended.
void finalize_at_exit() {
  int host_has = 0;
  MPI_Finalized(&host_has);
  call_no_more();
  if (host_has != 0) return;
  if (!wait_for_all(no_farewell ? Deadline::in(FAREWELL) : Deadline::never())) MPI_Abort(MPI_COMM_WORLD, 1);
  settle();
  MPI_Finalize();
}

// MPI_Finalize deletes the attributes of MPI_COMM_SELF before everything else, which calls this function.
int finalize_begins(MPI_Comm, int, void*, void*) {
  call_no_more();
  if (!no_farewell) wait_for_all(Deadline::never());
  settle();
  return MPI_SUCCESS;
}

class ThisModule final : public Module {
 public:
  std::string library() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text = {};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string whole(text.data());
    return whole.substr(0, whole.find('\n'));
  }

  std::string host_name() const override {
    std::array<char, MPI_MAX_PROCESSOR_NAME + 1> text = {};
    int length = 0;
    const std::lock_guard lock(calls());
    MPI_Get_processor_name(text.data(), &length);
    return text.data();
  }

  std::size_t handle_size() const override { return sizeof(MPI_Comm); }

  std::string start_in_host() override {
    int initialized = 0;
    MPI_Initialized(&initialized);
    if (initialized == 0)
      return "this program has not initialised the MPI that Lockstep has loaded, " + library();
    return start();
  }

  std::string start() override {
    const std::lock_guard lock(calls());
    int initialized = 0;
    int finalized = 0;
    int level = MPI_THREAD_SINGLE;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (finalized != 0) return "this program has called MPI_Finalize already";
    if (initialized == 0) return initialize();
    if (ours_) return "";
    MPI_Query_thread(&level);
    if (level == MPI_THREAD_MULTIPLE) return watch_for_the_end();
    return std::string("this program has initialised MPI with ") + name_of_level(level) +
           ", and Lockstep calls MPI from a thread of its own: call MPI_Init_thread(&argc, &argv, "
           "MPI_THREAD_MULTIPLE, &provided) instead of MPI_Init";
  }

  std::shared_ptr<Communicator> world(Patience& patience, std::string& error) override {
    if (world_) return world_;
    world_ = duplicate_of(MPI_COMM_WORLD, patience, error);
    return world_;
  }
  std::shared_ptr<Communicator> duplicate(const void* handle, Patience& patience,
                                          std::string& error) override {
    return duplicate_of(*static_cast<const MPI_Comm*>(handle), patience, error);
  }
  std::shared_ptr<Communicator> duplicate_fortran(int handle, Patience& patience,
                                                  std::string& error) override {
    return duplicate_of(MPI_Comm_f2c(handle), patience, error);
  }
  void expect_no_farewell() override {
    const std::lock_guard lock(calls());
    no_farewell = true;
  }

 private:
  std::string initialize() {
    int level = MPI_THREAD_SINGLE;
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
    if (code != MPI_SUCCESS) return error_text("MPI_Init_thread", code);
    ours_ = true;
    std::atexit(finalize_at_exit);
    std::at_quick_exit(finalize_at_exit);
    if (level >= MPI_THREAD_SERIALIZED) return "";
    return std::string("this MPI offers only ") + name_of_level(level) + "; MPI_THREAD_SERIALIZED is needed";
  }

  static std::string watch_for_the_end() {
    static int key = MPI_KEYVAL_INVALID;
    if (key != MPI_KEYVAL_INVALID) return "";
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, finalize_begins, &key, nullptr);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
    return "";
  }

  // The duplicate is an attribute of its communicator. So it lives as long as the communicator, and is found
  // again.
  static std::shared_ptr<OwnCommunicator> duplicate_of(MPI_Comm comm, Patience& patience,
                                                       std::string& error) {
    static int key = MPI_KEYVAL_INVALID;
    void* known = nullptr;
    int found = 0;
    if (comm == MPI_COMM_NULL) return error = "this is MPI_COMM_NULL", nullptr;
    {
      const std::lock_guard lock(calls());
      if (key == MPI_KEYVAL_INVALID)
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key, nullptr);
      int between_groups = 0;
      MPI_Comm_test_inter(comm, &between_groups);
      if (between_groups != 0) return error = "this is an intercommunicator", nullptr;
      MPI_Comm_get_attr(comm, key, static_cast<void*>(&known), &found);
    }
    if (found != 0) return *static_cast<std::shared_ptr<OwnCommunicator>*>(known);
    auto copy = copy_of(comm, patience, error);
    if (copy) {
      const std::lock_guard lock(calls());
      MPI_Comm_set_attr(comm, key, new std::shared_ptr<OwnCommunicator>(copy));
    }
    return copy;
  }

  static std::shared_ptr<OwnCommunicator> copy_of(MPI_Comm comm, Patience& patience, std::string& error) {
    // Never freed, as the duplicate is not. If the deadline passes, MPI still writes it when all ranks have
    // come.
    auto* const copy = new MPI_Comm(MPI_COMM_NULL);
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS;
    {
      const std::lock_guard lock(calls());
      code = MPI_Comm_idup(comm, copy, &request);
    }
    const bool came = wait_until(patience, [&] {
      int done = 0;
      if (code == MPI_SUCCESS) code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      return done != 0 || code != MPI_SUCCESS;
    });
    if (!came) return nullptr;
    if (code == MPI_SUCCESS) return std::make_shared<OwnCommunicator>(*copy);
    error = error_text("MPI_Comm_idup", code);
    return nullptr;
  }

  bool ours_ = false;  // Lockstep has initialised MPI
  std::shared_ptr<OwnCommunicator> world_;
};

}  // namespace
}  // namespace lockstep::mpi

extern "C" __attribute__((visibility("default"))) lockstep::mpi::Module* lockstep_mpi_module_2() {
  static auto* const instance = new lockstep::mpi::ThisModule;  // outlives static destructors
  return instance;
}
// NOLINTEND
