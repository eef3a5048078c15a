#include "lockstep/c/named.h"

#include <algorithm>
#include <vector>

#include "lockstep/c/boundary.h"
#include "lockstep/c/named_table.h"
#include "lockstep/named/session.h"

namespace named = lockstep::named;
using lockstep::str;
using lockstep::c::Failure;
using lockstep::c::guarded;
using lockstep::c::named_operations;
using lockstep::c::required;

namespace {

static_assert(static_cast<int>(named::Kind::ALLREDUCE) == LOCKSTEP_NAMED_ALLREDUCE &&
              static_cast<int>(named::Kind::ALLGATHER) == LOCKSTEP_NAMED_ALLGATHER &&
              static_cast<int>(named::Kind::BROADCAST) == LOCKSTEP_NAMED_BROADCAST &&
              static_cast<int>(named::Kind::ALLTOALL) == LOCKSTEP_NAMED_ALLTOALL &&
              static_cast<int>(named::Kind::REDUCESCATTER) == LOCKSTEP_NAMED_REDUCESCATTER &&
              static_cast<int>(named::Kind::BARRIER) == LOCKSTEP_NAMED_BARRIER &&
              static_cast<int>(named::Kind::JOIN) == LOCKSTEP_NAMED_JOIN);
static_assert(static_cast<int>(named::Op::AVERAGE) == LOCKSTEP_NAMED_AVERAGE &&
              static_cast<int>(named::Op::SUM) == LOCKSTEP_NAMED_SUM &&
              static_cast<int>(named::Op::ADASUM) == LOCKSTEP_NAMED_ADASUM &&
              static_cast<int>(named::Op::MIN) == LOCKSTEP_NAMED_MIN &&
              static_cast<int>(named::Op::MAX) == LOCKSTEP_NAMED_MAX &&
              static_cast<int>(named::Op::PRODUCT) == LOCKSTEP_NAMED_PRODUCT);

void check_range(const char* name, int value, int most) {
  if (value < 0 || value > most)
    throw Failure(LOCKSTEP_ERROR_INVALID_ARGUMENT, str(name, " ", value, " is not from 0 to ", most));
}

// Empty: the engine gives it a number.
std::string name_of(const lockstep_named_request& given, named::Kind kind) {
  if (kind == named::Kind::JOIN) return "join";
  return given.name != nullptr ? std::string(given.name) : std::string();
}

named::Submission submission_of(const lockstep_named_request& given) {
  lockstep::c::check_struct_size(given.struct_size, sizeof(given), "LOCKSTEP_NAMED_REQUEST");
  check_range("kind", given.kind, LOCKSTEP_NAMED_JOIN);
  check_range("op", given.op, LOCKSTEP_NAMED_PRODUCT);
  constexpr int MOST_DIMENSIONS = 64;
  check_range("dimensions", given.dimensions, MOST_DIMENSIONS);
  named::Submission made{.input = given.input, .output = given.output};
  named::Request& request = made.request;
  request.kind = static_cast<named::Kind>(given.kind);
  request.name = name_of(given, request.kind);
  request.process_set = given.process_set;
  if (request.kind >= named::Kind::BARRIER) return made;
  request.dtype = lockstep::c::dtype_of(given.dtype);
  if (given.dimensions > 0) {
    const int64_t* const shape = &required(given.shape, "shape");
    request.shape.assign(shape, shape + given.dimensions);
  }
  if (request.kind == named::Kind::BROADCAST) request.root = given.root;
  if (request.kind == named::Kind::ALLTOALL && given.splits != nullptr)
    request.splits.assign(given.splits,
                          given.splits + named::engine()->process_sets().ranks(given.process_set).size());
  if (request.kind == named::Kind::ALLREDUCE || request.kind == named::Kind::REDUCESCATTER) {
    request.op = static_cast<named::Op>(given.op);
    request.prescale = given.prescale;
    request.postscale = given.postscale;
  }
  return made;
}

}  // namespace

int lockstep_named_init(const int* ranks, const size_t* counts, size_t sets) {
  return guarded("lockstep_named_init", [&] {
    std::vector<std::vector<int>> lists;
    for (size_t s = 0; s < sets; ++s) {
      const size_t count = (&required(counts, "counts"))[s];
      const int* const first = &required(ranks, "ranks");
      lists.emplace_back(first, first + count);
      ranks += count;
    }
    named::start(lists);
  });
}

int lockstep_named_shutdown(void) {
  return guarded("lockstep_named_shutdown", [] { named::stop(); });
}

int lockstep_named_is_initialized(void) { return named::is_started() ? 1 : 0; }

int lockstep_named_submit(const lockstep_named_request* requests, size_t count, lockstep_named* operations) {
  return guarded("lockstep_named_submit", [&] {
    const auto engine = named::engine();
    for (size_t i = 0; i < count; ++i) (&required(operations, "operations"))[i] = 0;
    if (count == 1) {
      auto one = submission_of(required(requests, "requests"));
      *operations = named_operations().add(engine->submit(std::move(one)));
      return;
    }
    std::vector<named::Submission> submissions;
    for (size_t i = 0; i < count; ++i)
      submissions.push_back(submission_of((&required(requests, "requests"))[i]));
    if (count == 0) return;
    const auto made = engine->submit_all(std::move(submissions));
    for (size_t i = 0; i < count; ++i) operations[i] = named_operations().add(made[i]);
  });
}

int lockstep_named_prepare(const lockstep_named_request* request, lockstep_named* operation) {
  return guarded("lockstep_named_prepare", [&] {
    lockstep::c::cleared(operation, "operation");
    auto given = submission_of(required(request, "request"));
    *operation = named_operations().add(named::engine()->prepare(std::move(given.request)));
  });
}

int lockstep_named_start(lockstep_named operation, const void* input, void* output) {
  return guarded("lockstep_named_start",
                 [&] { named::engine()->start(named_operations().get(operation), input, output); });
}

int lockstep_named_poll(lockstep_named operation, int* done) {
  return guarded("lockstep_named_poll",
                 [&] { required(done, "done") = named_operations().get(operation)->poll() ? 1 : 0; });
}

int lockstep_named_wait(lockstep_named operation) {
  return guarded("lockstep_named_wait", [&] { named_operations().get(operation)->wait(); });
}

// The handle is freed last: until then another thread may ask for it.
int lockstep_named_finish(lockstep_named operation) {
  return guarded("lockstep_named_finish", [&] {
    const auto waited_for = named_operations().get(operation);
    const auto free = [&] { named_operations().take(operation); };
    try {
      waited_for->wait();
    } catch (...) {
      free();
      throw;
    }
    free();
  });
}

int lockstep_named_notify(lockstep_named operation, void (*ended)(void* context), void* context,
                          int is_awaited) {
  return guarded("lockstep_named_notify", [&] {
    void (&call)(void*) = required(ended, "ended");
    named_operations().get(operation)->notify([&call, context] { call(context); }, is_awaited != 0);
  });
}

int lockstep_named_result(lockstep_named operation, void** data, int64_t* rows) {
  return guarded("lockstep_named_result", [&] {
    const auto found = named_operations().get(operation);
    const named::OperationResult& result = found->result();
    required(data, "data") = result.memory.get();
    required(rows, "rows") = result.shape.empty() ? 0 : result.shape[0];
  });
}

int lockstep_named_received(lockstep_named operation, int64_t* splits) {
  return guarded("lockstep_named_received", [&] {
    const auto found = named_operations().get(operation);
    const std::vector<int64_t>& received = found->result().received_splits;
    if (!received.empty()) std::copy(received.begin(), received.end(), &required(splits, "splits"));
  });
}

int lockstep_named_last_joined(lockstep_named operation, int* rank) {
  return guarded("lockstep_named_last_joined",
                 [&] { required(rank, "rank") = named_operations().get(operation)->result().number; });
}

int lockstep_named_free(lockstep_named operation) {
  return guarded("lockstep_named_free", [&] { named_operations().take(operation); });
}

int lockstep_named_add_process_set(const int* ranks, size_t count, int* process_set) {
  return guarded("lockstep_named_add_process_set", [&] {
    const int* const first = count == 0 ? ranks : &required(ranks, "ranks");
    required(process_set, "process_set") = named::engine()->add_process_set({first, first + count});
  });
}

int lockstep_named_remove_process_set(int process_set) {
  return guarded("lockstep_named_remove_process_set",
                 [&] { named::engine()->remove_process_set(process_set); });
}

int lockstep_named_process_set(int process_set, int* rank, int* size) {
  return guarded("lockstep_named_process_set", [&] {
    const auto group = named::engine()->process_sets().group(process_set);
    required(rank, "rank") = group.rank();
    required(size, "size") = group.size();
  });
}

int lockstep_named_places(int* cross_rank, int* cross_size, int* is_homogeneous) {
  return guarded("lockstep_named_places", [&] {
    const named::Places places = named::places();
    required(cross_rank, "cross_rank") = places.cross_rank;
    required(cross_size, "cross_size") = places.cross_size;
    required(is_homogeneous, "is_homogeneous") = places.is_homogeneous ? 1 : 0;
  });
}

int lockstep_named_start_timeline(const char* path, int mark_cycles) {
  return guarded("lockstep_named_start_timeline",
                 [&] { named::engine()->start_timeline(&required(path, "path"), mark_cycles != 0); });
}

int lockstep_named_stop_timeline(void) {
  return guarded("lockstep_named_stop_timeline", [] { named::engine()->stop_timeline(); });
}
