// Compares what compat/tensorflow/c_api.h declares with the headers of an installed TensorFlow. It is
// compiled alone, by tensorflow_headers_test.py. An enumeration counts as its number, and a pointer to a
// struct as any such pointer.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/compat/tensorflow/c_api.h"
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"
#include "tensorflow/c/tf_datatype.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/c/tf_tensor.h"

namespace {

template <typename T> struct Plain { using Type = T; };
template <typename T>
requires std::is_enum_v<T>
struct Plain<T> {
  static_assert(sizeof(T) == sizeof(int));
  using Type = int;
};
template <typename Result, typename... Arguments> struct Plain<Result (*)(Arguments...)> {
  using Type = typename Plain<Result>::Type (*)(typename Plain<Arguments>::Type...);
};

namespace ours = lockstep::compat::tensorflow;
namespace codes = lockstep::compat;

#define LOCKSTEP_COMPARE(result, name, parameters) \
  static_assert(std::is_same_v<decltype(ours::Api::name), Plain<decltype(&::name)>::Type>, #name);
LOCKSTEP_TENSORFLOW_FUNCTIONS(LOCKSTEP_COMPARE)

static_assert(codes::OK == TF_OK && codes::INVALID_ARGUMENT == TF_INVALID_ARGUMENT &&
              codes::ABORTED == TF_ABORTED && codes::DEADLINE_EXCEEDED == TF_DEADLINE_EXCEEDED &&
              codes::FAILED_PRECONDITION == TF_FAILED_PRECONDITION && codes::INTERNAL == TF_INTERNAL &&
              codes::UNAVAILABLE == TF_UNAVAILABLE);
static_assert(TF_FLOAT == 1 && TF_DOUBLE == 2 && TF_INT32 == 3 && TF_UINT8 == 4 && TF_INT16 == 5 &&
              TF_INT8 == 6 && TF_COMPLEX64 == 8 && TF_INT64 == 9 && TF_BOOL == 10 && TF_BFLOAT16 == 14 &&
              TF_UINT16 == 17 && TF_COMPLEX128 == 18 && TF_HALF == 19 && TF_UINT32 == 22 && TF_UINT64 == 23);

}  // namespace
