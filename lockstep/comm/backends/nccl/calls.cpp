#include "lockstep/comm/backends/nccl/calls.h"

#include "lockstep/base/str.h"

namespace lockstep::nccl {
namespace {

using Kind = Step::Kind;

std::optional<DataType> type_of(DType dtype) {
  switch (dtype) {
    case DType::FLOAT64:
    case DType::COMPLEX128: return FLOAT64;
    case DType::FLOAT32:
    case DType::COMPLEX64: return FLOAT32;
    case DType::FLOAT16: return FLOAT16;
    case DType::BFLOAT16: return BFLOAT16;
    case DType::INT8: return INT8;
    case DType::BOOL:
    case DType::UINT8: return UINT8;
    case DType::INT32: return INT32;
    case DType::UINT32: return UINT32;
    case DType::INT64: return INT64;
    case DType::UINT64: return UINT64;
    case DType::INT16:
    case DType::UINT16: break;
  }
  return std::nullopt;
}

// For truth values stored as bytes of 0 and 1: a sum says whether any is true, a product whether all are.
std::optional<RedOp> op_of_bool(ReduceOp op) {
  switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::MAX:
    case ReduceOp::BOR: return MAX;
    case ReduceOp::PRODUCT:
    case ReduceOp::MIN:
    case ReduceOp::BAND: return MIN;
    case ReduceOp::AVG:
    case ReduceOp::BXOR: break;
  }
  return std::nullopt;
}

std::optional<RedOp> op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::SUM: return SUM;
    case ReduceOp::AVG: return AVG;
    case ReduceOp::PRODUCT: return PROD;
    case ReduceOp::MIN: return MIN;
    case ReduceOp::MAX: return MAX;
    case ReduceOp::BAND:
    case ReduceOp::BOR:
    case ReduceOp::BXOR: break;
  }
  return std::nullopt;
}

bool reduces(Verb verb) {
  return verb == Verb::ALL_REDUCE || verb == Verb::REDUCE || verb == Verb::REDUCE_SCATTER;
}

class Steps {
 public:
  Steps(const Request& request, int rank, int size) : request_(request), rank_(rank), size_(size) {}

  std::vector<Step> make() {
    const std::size_t bytes = request_.count * size_of(request_.dtype);
    auto* const output = static_cast<std::byte*>(request_.output);
    const auto* const input = static_cast<const std::byte*>(request_.input);
    switch (request_.verb) {
      case Verb::ALL_REDUCE: reduce(Kind::ALL_REDUCE, input, output, request_.count, 0); break;
      case Verb::REDUCE: reduce(Kind::REDUCE, input, output, request_.count, request_.root); break;
      case Verb::BROADCAST: add({Kind::BROADCAST, input, output, bytes, UINT8, SUM, request_.root}); break;
      case Verb::ALL_GATHER: all_gather(input, bytes); break;
      case Verb::REDUCE_SCATTER: reduce_scatter(output); break;
      case Verb::GATHER:
        send({input, bytes}, request_.root);
        receive_from_all();
        break;
      case Verb::SCATTER:
        send_to_all();
        receive({output, bytes}, request_.root);
        break;
      case Verb::ALL_TO_ALL:
        send_to_all();
        receive_from_all();
        break;
      case Verb::SEND: send({input, bytes}, request_.root); break;
      case Verb::RECV: receive({output, bytes}, request_.root); break;
      case Verb::BARRIER: break;
    }
    return std::move(steps_);
  }

 private:
  void add(const Step& step) {
    if (step.count > 0) steps_.push_back(step);
  }
  void send(std::span<const std::byte> bytes, int peer) {
    add({Kind::SEND, bytes.data(), nullptr, bytes.size(), UINT8, SUM, peer});
  }
  void receive(std::span<std::byte> bytes, int peer) {
    add({Kind::RECV, nullptr, bytes.data(), bytes.size(), UINT8, SUM, peer});
  }
  // Only ranks that have the lists send: all ranks, or the root.
  void send_to_all() {
    for (std::size_t r = 0; r < request_.inputs.size(); ++r) send(request_.inputs[r], static_cast<int>(r));
  }
  void receive_from_all() {
    for (std::size_t r = 0; r < request_.outputs.size(); ++r)
      receive(request_.outputs[r], static_cast<int>(r));
  }
  void reduce(Kind kind, const void* input, void* output, std::size_t count, int root) {
    const Reduction how = reduction_of(request_.dtype, request_.op).value();
    add({kind, input, output, count * how.per_element, how.type, how.op, root});
  }
  void all_gather(const std::byte* input, std::size_t bytes) {
    if (request_.is_whole)
      return add({Kind::ALL_GATHER, input, request_.outputs[0].data(), bytes, UINT8, SUM, 0});
    for (int r = 0; r < size_; ++r) {
      const auto& part = request_.outputs[static_cast<std::size_t>(r)];
      add({Kind::BROADCAST, r == rank_ ? input : part.data(), part.data(), part.size(), UINT8, SUM, r});
    }
  }
  void reduce_scatter(void* output) {
    if (request_.is_whole)
      return reduce(Kind::REDUCE_SCATTER, request_.inputs[0].data(), output, request_.count, 0);
    for (int r = 0; r < size_; ++r) {
      const auto& part = request_.inputs[static_cast<std::size_t>(r)];
      reduce(Kind::REDUCE, part.data(), r == rank_ ? output : nullptr, part.size() / size_of(request_.dtype),
             r);
    }
  }

  const Request& request_;
  const int rank_;
  const int size_;
  std::vector<Step> steps_;
};

}  // namespace

std::optional<Reduction> reduction_of(DType dtype, ReduceOp op) {
  const auto type = type_of(dtype);
  const auto how = dtype == DType::BOOL ? op_of_bool(op) : op_of(op);
  if (!type || !how) return std::nullopt;
  const bool adds = *how == SUM || *how == AVG;
  if (is_complex(dtype) && !adds) return std::nullopt;
  if (*how == AVG && !is_floating(dtype) && !is_complex(dtype)) return std::nullopt;
  return Reduction{*type, *how, is_complex(dtype) ? 2U : 1U};
}

std::string lacks(const Request& request) {
  if (reduces(request.verb) && !reduction_of(request.dtype, request.op))
    return str("NCCL has no ", name_of(request.op), " of ", name_of(request.dtype),
               "; use a group for CPU memory, or another dtype");
  const bool is_message = lockstep::is_message(request.verb);
  if (is_message && request.root == ANY_SOURCE) return "NCCL cannot receive from any rank; name the source";
  if (is_message && request.tag != 0)
    return str("NCCL has no tags: messages between two ranks are received in the order sent; use tag 0, not ",
               request.tag);
  return "";
}

std::vector<Step> steps_of(const Request& request, int rank, int size) {
  return Steps(request, rank, size).make();
}

const char* name_of(Step::Kind kind) {
  switch (kind) {
    case Kind::ALL_REDUCE: return "ncclAllReduce";
    case Kind::BROADCAST: return "ncclBroadcast";
    case Kind::REDUCE: return "ncclReduce";
    case Kind::ALL_GATHER: return "ncclAllGather";
    case Kind::REDUCE_SCATTER: return "ncclReduceScatter";
    case Kind::SEND: return "ncclSend";
    case Kind::RECV: return "ncclRecv";
  }
  return "";
}

Launched launch(const Api& api, const Step& s, Comm comm, CudaStream stream) {
  const auto call = [&] {
    switch (s.kind) {
      case Kind::ALL_REDUCE: return api.all_reduce(s.input, s.output, s.count, s.type, s.op, comm, stream);
      case Kind::BROADCAST: return api.broadcast(s.input, s.output, s.count, s.type, s.rank, comm, stream);
      case Kind::REDUCE: return api.reduce(s.input, s.output, s.count, s.type, s.op, s.rank, comm, stream);
      case Kind::ALL_GATHER: return api.all_gather(s.input, s.output, s.count, s.type, comm, stream);
      case Kind::REDUCE_SCATTER:
        return api.reduce_scatter(s.input, s.output, s.count, s.type, s.op, comm, stream);
      case Kind::SEND: return api.send(s.input, s.count, s.type, s.rank, comm, stream);
      case Kind::RECV: return api.recv(s.output, s.count, s.type, s.rank, comm, stream);
    }
    return INTERNAL_ERROR;
  };
  return {call(), name_of(s.kind)};
}

}  // namespace lockstep::nccl
