#include "lockstep/named/request.h"

#include <array>
#include <cstring>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::named {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) text += str(d == 0 ? "" : ", ", shape[d]);
  return text + "]";
}

bool may_differ_in_rows(Kind kind) { return kind == Kind::ALLGATHER || kind == Kind::ALLTOALL; }
bool has_op(Kind kind) { return kind == Kind::ALLREDUCE || kind == Kind::REDUCESCATTER; }

bool equal_shapes(const Request& a, const Request& b) {
  if (!may_differ_in_rows(a.kind)) return a.shape == b.shape;
  if (a.shape.size() != b.shape.size() || a.shape.empty()) return a.shape.size() == b.shape.size();
  return std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1);
}

template <typename T> void put(std::string& bytes, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void put_text(std::string& bytes, const std::string& text) {
  put(bytes, static_cast<std::uint32_t>(text.size()));
  bytes += text;
}
void put_list(std::string& bytes, const std::vector<std::int64_t>& list) {
  put(bytes, static_cast<std::uint32_t>(list.size()));
  for (const std::int64_t value : list) put(bytes, value);
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  bool at_end() const { return rest_.empty(); }
  template <typename T> T get() {
    T value{};
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  std::string text() { return std::string(take(get<std::uint32_t>())); }
  std::vector<std::int64_t> list() {
    std::vector<std::int64_t> list(get<std::uint32_t>());
    for (std::int64_t& value : list) value = get<std::int64_t>();
    return list;
  }

 private:
  std::string_view take(std::size_t count) {
    if (count > rest_.size()) throw InternalError("named operations: an announcement is cut short");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::string_view rest_;
};

}  // namespace

std::string_view name_of(Kind kind) {
  constexpr std::array<std::string_view, KIND_COUNT> NAMES = {
      "allreduce", "allgather", "broadcast",       "alltoall",          "reducescatter",
      "barrier",   "join",      "add_process_set", "remove_process_set"};
  return NAMES.at(static_cast<std::size_t>(kind));
}

std::string_view name_of(Op op) {
  constexpr std::array<std::string_view, OP_COUNT> NAMES = {"average", "sum", "adasum",
                                                            "min",     "max", "product"};
  return NAMES.at(static_cast<std::size_t>(op));
}

std::int64_t Request::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t Request::row() const {
  if (shape.empty()) return 1;
  return std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::string describe(const Request& request) {
  std::string text(name_of(request.kind));
  if (request.kind == Kind::ADD_PROCESS_SET) return text + " " + shape_text(request.shape);
  if (request.kind == Kind::REMOVE_PROCESS_SET) return text + str(" ", request.root);
  if (request.kind == Kind::BARRIER || request.kind == Kind::JOIN) return text;
  text += str(" of ", lockstep::name_of(request.dtype), shape_text(request.shape));
  if (has_op(request.kind)) text += str(", ", name_of(request.op));
  if (request.kind == Kind::BROADCAST) text += str(", root ", request.root);
  if (request.prescale != 1.0) text += str(", prescale ", request.prescale);
  if (request.postscale != 1.0) text += str(", postscale ", request.postscale);
  if (request.group_size > 0) text += str(", in a group of ", request.group_size);
  return text;
}

std::string differences(const Request& a, const Request& b) {
  if (a.kind != b.kind) return "operation";
  std::string text;
  const auto add = [&](bool differs, const char* what) {
    if (differs) text += str(text.empty() ? "" : ", ", what);
  };
  add(a.dtype != b.dtype, "dtype");
  add(!equal_shapes(a, b), may_differ_in_rows(a.kind) ? "shape beyond the first dimension" : "shape");
  add(has_op(a.kind) && a.op != b.op, "operator");
  add(a.root != b.root, "root");
  add(a.prescale != b.prescale, "prescale");
  add(a.postscale != b.postscale, "postscale");
  add(a.group_size != b.group_size || a.group != b.group, "group");
  return text;
}

void encode(const Request& request, std::string& bytes) {
  put(bytes, request.kind);
  put(bytes, request.dtype);
  put(bytes, request.op);
  put(bytes, static_cast<std::int32_t>(request.process_set));
  put(bytes, static_cast<std::int32_t>(request.root));
  put(bytes, static_cast<std::int32_t>(request.group_size));
  put(bytes, request.prescale);
  put(bytes, request.postscale);
  put_text(bytes, request.name);
  put_text(bytes, request.group);
  put_list(bytes, request.shape);
  put_list(bytes, request.splits);
}

std::vector<std::shared_ptr<const Request>> decode(std::string_view bytes) {
  std::vector<std::shared_ptr<const Request>> requests;
  for (Reader reader(bytes); !reader.at_end();) {
    auto request = std::make_shared<Request>();
    request->kind = reader.get<Kind>();
    request->dtype = reader.get<DType>();
    request->op = reader.get<Op>();
    request->process_set = reader.get<std::int32_t>();
    request->root = reader.get<std::int32_t>();
    request->group_size = reader.get<std::int32_t>();
    request->prescale = reader.get<double>();
    request->postscale = reader.get<double>();
    request->name = reader.text();
    request->group = reader.text();
    request->shape = reader.list();
    request->splits = reader.list();
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace lockstep::named
