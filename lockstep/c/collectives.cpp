#include "lockstep/c/collectives.h"

#include "lockstep/c/buffers.h"
#include "lockstep/c/work_table.h"
#include "lockstep/comm/collectives/coalesced.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/comm/collectives/monitored_barrier.h"

namespace comm = lockstep::comm;
using lockstep::DType;
using lockstep::ProcessGroup;
using lockstep::Work;
using lockstep::c::counts_given;
using lockstep::c::dtype_of;
using lockstep::c::even_parts_of;
using lockstep::c::is_root;
using lockstep::c::op_of;
using lockstep::c::own_count;
using lockstep::c::parts_of;
using lockstep::c::required;
using lockstep::c::verb;
using lockstep::c::whole_buffer;

int lockstep_barrier(lockstep_group group, lockstep_work* work) {
  return verb("lockstep_barrier", group, work,
              [](const ProcessGroup& on, bool async_op) { return comm::barrier(on, async_op); });
}

int lockstep_monitored_barrier(lockstep_group group, int64_t timeout_ms, int wait_all_ranks) {
  return lockstep::c::guarded("lockstep_monitored_barrier", [&] {
    const auto timeout = lockstep::c::milliseconds(timeout_ms, "timeout_ms");
    comm::monitored_barrier(lockstep::c::find_group(group), timeout.value_or(std::chrono::minutes(30)),
                            wait_all_ranks != 0);
  });
}

int lockstep_all_reduce(lockstep_group group, void* data, size_t count, int dtype, int op,
                        lockstep_work* work) {
  return verb("lockstep_all_reduce", group, work, [&](const ProcessGroup& on, bool async_op) {
    return comm::all_reduce(on, data, count, dtype_of(dtype), op_of(op), async_op);
  });
}

int lockstep_all_reduce_coalesced(lockstep_group group, void* const* data, const size_t* counts,
                                  size_t buffers, int dtype, int op, lockstep_work* work) {
  return verb("lockstep_all_reduce_coalesced", group, work, [&](const ProcessGroup& on, bool async_op) {
    const DType type = dtype_of(dtype);
    std::vector<std::span<std::byte>> spans;
    for (size_t b = 0; b < buffers; ++b) {
      const size_t count = (&required(counts, "counts"))[b];
      const size_t bytes = lockstep::c::bytes_in_all({&count, 1}, type, "data");
      spans.push_back(lockstep::c::span_at((&required(data, "data"))[b], bytes, "data"));
    }
    return comm::all_reduce_coalesced(on, std::move(spans), type, op_of(op), async_op);
  });
}

int lockstep_reduce(lockstep_group group, void* data, size_t count, int dtype, int op, int root,
                    lockstep_work* work) {
  return verb("lockstep_reduce", group, work, [&](const ProcessGroup& on, bool async_op) {
    return comm::reduce(on, data, count, dtype_of(dtype),
                        {.root = root, .op = op_of(op), .async_op = async_op});
  });
}

int lockstep_broadcast(lockstep_group group, void* data, size_t count, int dtype, int root,
                       lockstep_work* work) {
  return verb("lockstep_broadcast", group, work, [&](const ProcessGroup& on, bool async_op) {
    return comm::broadcast(on, data, count, dtype_of(dtype), root, async_op);
  });
}

int lockstep_all_gather(lockstep_group group, const void* input, void* output, size_t count, int dtype,
                        lockstep_work* work) {
  return verb("lockstep_all_gather", group, work, [&](const ProcessGroup& on, bool async_op) {
    const DType type = dtype_of(dtype);
    return comm::all_gather(on, input, count, type, whole_buffer(on, output, count, type, "output"),
                            async_op);
  });
}

int lockstep_all_gatherv(lockstep_group group, const void* input, void* output, const size_t* counts,
                         int dtype, lockstep_work* work) {
  return verb("lockstep_all_gatherv", group, work, [&](const ProcessGroup& on, bool async_op) {
    const DType type = dtype_of(dtype);
    const auto given = counts_given(on, counts, "counts");
    return comm::all_gather(on, input, own_count(on, given), type, parts_of(output, given, type, "output"),
                            async_op);
  });
}

int lockstep_reduce_scatter(lockstep_group group, const void* input, void* output, size_t count, int dtype,
                            int op, lockstep_work* work) {
  return verb("lockstep_reduce_scatter", group, work, [&](const ProcessGroup& on, bool async_op) {
    const DType type = dtype_of(dtype);
    return comm::reduce_scatter(on, {output, count, type}, whole_buffer(on, input, count, type, "input"),
                                op_of(op), async_op);
  });
}

int lockstep_reduce_scatterv(lockstep_group group, const void* input, void* output, const size_t* counts,
                             int dtype, int op, lockstep_work* work) {
  return verb("lockstep_reduce_scatterv", group, work, [&](const ProcessGroup& on, bool async_op) {
    const DType type = dtype_of(dtype);
    const auto given = counts_given(on, counts, "counts");
    return comm::reduce_scatter(on, {output, own_count(on, given), type},
                                parts_of(input, given, type, "input"), op_of(op), async_op);
  });
}

int lockstep_all_to_all(lockstep_group group, const void* input, void* output, size_t count, int dtype,
                        lockstep_work* work) {
  return verb("lockstep_all_to_all", group, work, [&](const ProcessGroup& on, bool async_op) {
    const DType type = dtype_of(dtype);
    return comm::all_to_all(
        on, type,
        {even_parts_of(on, input, count, type, "input"), even_parts_of(on, output, count, type, "output")},
        async_op);
  });
}

int lockstep_all_to_allv(lockstep_group group, const void* input, const size_t* input_counts, void* output,
                         const size_t* output_counts, int dtype, lockstep_work* work) {
  return verb("lockstep_all_to_allv", group, work, [&](const ProcessGroup& on, bool async_op) {
    const DType type = dtype_of(dtype);
    return comm::all_to_all(
        on, type,
        {parts_of(input, counts_given(on, input_counts, "input_counts"), type, "input"),
         parts_of(output, counts_given(on, output_counts, "output_counts"), type, "output")},
        async_op);
  });
}

int lockstep_gather(lockstep_group group, const void* input, void* output, size_t count, int dtype, int root,
                    lockstep_work* work) {
  return verb("lockstep_gather", group, work, [&](const ProcessGroup& on, bool async_op) {
    const DType type = dtype_of(dtype);
    std::vector<std::span<std::byte>> outputs;
    if (is_root(on, root)) outputs = even_parts_of(on, output, count, type, "output");
    return comm::gather(on, {input, count, type}, std::move(outputs), {.root = root, .async_op = async_op});
  });
}

int lockstep_gatherv(lockstep_group group, const void* input, size_t count, void* output,
                     const size_t* counts, int dtype, int root, lockstep_work* work) {
  return verb("lockstep_gatherv", group, work, [&](const ProcessGroup& on, bool async_op) {
    const DType type = dtype_of(dtype);
    std::vector<std::span<std::byte>> outputs;
    if (is_root(on, root)) outputs = parts_of(output, counts_given(on, counts, "counts"), type, "output");
    return comm::gather(on, {input, count, type}, std::move(outputs), {.root = root, .async_op = async_op});
  });
}

int lockstep_scatter(lockstep_group group, const void* input, void* output, size_t count, int dtype, int root,
                     lockstep_work* work) {
  return verb("lockstep_scatter", group, work, [&](const ProcessGroup& on, bool async_op) {
    const DType type = dtype_of(dtype);
    std::vector<std::span<const std::byte>> inputs;
    if (is_root(on, root)) inputs = even_parts_of(on, input, count, type, "input");
    return comm::scatter(on, {output, count, type}, std::move(inputs), {.root = root, .async_op = async_op});
  });
}

int lockstep_scatterv(lockstep_group group, const void* input, const size_t* counts, void* output,
                      size_t count, int dtype, int root, lockstep_work* work) {
  return verb("lockstep_scatterv", group, work, [&](const ProcessGroup& on, bool async_op) {
    const DType type = dtype_of(dtype);
    std::vector<std::span<const std::byte>> inputs;
    if (is_root(on, root)) inputs = parts_of(input, counts_given(on, counts, "counts"), type, "input");
    return comm::scatter(on, {output, count, type}, std::move(inputs), {.root = root, .async_op = async_op});
  });
}

int lockstep_send(lockstep_group group, const void* data, size_t count, int dtype, int destination, int tag,
                  lockstep_work* work) {
  return verb("lockstep_send", group, work, [&](const ProcessGroup& on, bool async_op) {
    if (async_op) return comm::isend(on, data, count, dtype_of(dtype), destination, tag);
    comm::send(on, data, count, dtype_of(dtype), destination, tag);
    return Work();
  });
}

int lockstep_recv(lockstep_group group, void* data, size_t count, int dtype, int source, int tag, int* from,
                  lockstep_work* work) {
  return verb("lockstep_recv", group, work, [&](const ProcessGroup& on, bool async_op) {
    if (async_op) return comm::irecv(on, data, count, dtype_of(dtype), source, tag);
    const int sender = comm::recv(on, data, count, dtype_of(dtype), source, tag);
    if (from != nullptr) *from = sender;
    return Work();
  });
}
