#include "lockstep/c/boundary.h"

#include <new>

#include "lockstep/base/error.h"
#include "lockstep/c/last_failure.h"

namespace lockstep::c {
namespace {

static_assert(static_cast<int>(ErrorCode::INVALID_ARGUMENT) == LOCKSTEP_ERROR_INVALID_ARGUMENT &&
              static_cast<int>(ErrorCode::TIMEOUT) == LOCKSTEP_ERROR_TIMEOUT &&
              static_cast<int>(ErrorCode::PEER_LOST) == LOCKSTEP_ERROR_PEER_LOST &&
              static_cast<int>(ErrorCode::MISMATCH) == LOCKSTEP_ERROR_MISMATCH &&
              static_cast<int>(ErrorCode::ABORTED) == LOCKSTEP_ERROR_ABORTED &&
              static_cast<int>(ErrorCode::STORE) == LOCKSTEP_ERROR_STORE &&
              static_cast<int>(ErrorCode::FORMAT) == LOCKSTEP_ERROR_FORMAT &&
              static_cast<int>(ErrorCode::SYSTEM) == LOCKSTEP_ERROR_SYSTEM &&
              static_cast<int>(ErrorCode::INTERNAL) == LOCKSTEP_ERROR_INTERNAL &&
              static_cast<int>(ErrorCode::SPAWN) == LOCKSTEP_ERROR_SPAWN &&
              static_cast<int>(ErrorCode::BACKEND) == LOCKSTEP_ERROR_BACKEND);

static_assert(
    static_cast<int>(DType::FLOAT64) == LOCKSTEP_FLOAT64 &&
    static_cast<int>(DType::FLOAT32) == LOCKSTEP_FLOAT32 &&
    static_cast<int>(DType::FLOAT16) == LOCKSTEP_FLOAT16 &&
    static_cast<int>(DType::BFLOAT16) == LOCKSTEP_BFLOAT16 &&
    static_cast<int>(DType::INT8) == LOCKSTEP_INT8 && static_cast<int>(DType::UINT8) == LOCKSTEP_UINT8 &&
    static_cast<int>(DType::INT16) == LOCKSTEP_INT16 && static_cast<int>(DType::UINT16) == LOCKSTEP_UINT16 &&
    static_cast<int>(DType::INT32) == LOCKSTEP_INT32 && static_cast<int>(DType::UINT32) == LOCKSTEP_UINT32 &&
    static_cast<int>(DType::INT64) == LOCKSTEP_INT64 && static_cast<int>(DType::UINT64) == LOCKSTEP_UINT64 &&
    static_cast<int>(DType::BOOL) == LOCKSTEP_BOOL &&
    static_cast<int>(DType::COMPLEX64) == LOCKSTEP_COMPLEX64 &&
    static_cast<int>(DType::COMPLEX128) == LOCKSTEP_COMPLEX128 && DTYPE_COUNT == 15);

static_assert(static_cast<int>(ReduceOp::SUM) == LOCKSTEP_SUM &&
              static_cast<int>(ReduceOp::AVG) == LOCKSTEP_AVG &&
              static_cast<int>(ReduceOp::PRODUCT) == LOCKSTEP_PRODUCT &&
              static_cast<int>(ReduceOp::MIN) == LOCKSTEP_MIN &&
              static_cast<int>(ReduceOp::MAX) == LOCKSTEP_MAX &&
              static_cast<int>(ReduceOp::BAND) == LOCKSTEP_BAND &&
              static_cast<int>(ReduceOp::BOR) == LOCKSTEP_BOR &&
              static_cast<int>(ReduceOp::BXOR) == LOCKSTEP_BXOR && REDUCE_OP_COUNT == 8);

// An Error that says that there is none would be taken for success.
int code_of(const Error& error) {
  return error.code() == ErrorCode::NONE ? LOCKSTEP_ERROR_INTERNAL : static_cast<int>(error.code());
}

[[noreturn]] void refuse(const std::string& text) { throw Failure(LOCKSTEP_ERROR_INVALID_ARGUMENT, text); }

}  // namespace

int take_failure(const char* function) noexcept {
  LastFailure& last = last_failure();
  try {
    throw;
  } catch (const Failure& failure) {
    return last.keep(failure.code(), {function, ": ", failure.what()});
  } catch (const PeerLost& error) {
    const int code = last.keep(code_of(error), {error.what()});
    last.peer = error.peer();
    return code;
  } catch (const SystemError& error) {
    const int code = last.keep(code_of(error), {error.what()});
    last.number = error.error_number();
    return code;
  } catch (const Error& error) {
    return last.keep(code_of(error), {error.what()});
  } catch (const std::bad_alloc&) {
    return last.keep(LOCKSTEP_ERROR_OUT_OF_MEMORY, {function, ": there is not enough memory"});
  } catch (const std::length_error&) {  // of a container that would be larger than any memory
    return last.keep(LOCKSTEP_ERROR_OUT_OF_MEMORY, {function, ": there is not enough memory"});
  } catch (const std::exception& error) {
    return last.keep(LOCKSTEP_ERROR_INTERNAL, {function, ": ", error.what()});
  } catch (...) {
    return last.keep(LOCKSTEP_ERROR_INTERNAL, {function, ": an unknown exception"});
  }
}

DType dtype_of(int dtype) {
  if (dtype < 0 || dtype >= DTYPE_COUNT)
    refuse(str("dtype ", dtype, " is none of enum lockstep_dtype (0 to ", DTYPE_COUNT - 1, ")"));
  return static_cast<DType>(dtype);
}

ReduceOp op_of(int op) {
  if (op < 0 || op >= REDUCE_OP_COUNT)
    refuse(str("op ", op, " is none of enum lockstep_op (0 to ", REDUCE_OP_COUNT - 1, ")"));
  return static_cast<ReduceOp>(op);
}

std::optional<std::chrono::milliseconds> milliseconds(std::int64_t number, const char* name) {
  if (number < 0) refuse(str(name, " ", number, " is negative; 0 means the default"));
  if (number == 0) return std::nullopt;
  return std::chrono::milliseconds(number);
}

void check_struct_size(std::size_t given, std::size_t known, const char* initializer) {
  if (given == known) return;
  refuse(str("the options have struct_size ", given, ", this library knows ", known, "; begin them with ",
             initializer, ", and build the program with this library's headers"));
}

}  // namespace lockstep::c
