#include "lockstep/compat/c10d/failure.h"

#include <c10/util/Exception.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::compat::torch_backend {

std::exception_ptr as_torch(const std::exception_ptr& error, std::chrono::milliseconds timeout) {
  try {
    try {
      std::rethrow_exception(error);
    } catch (const InvalidArgument&) {
      return error;
    } catch (const Timeout& late) {
      throw_dist_backend_error(
          str(late.what(), "; Timed out waiting ", timeout.count(), "ms for the operation to complete"));
    } catch (const Error& failed) {
      throw_dist_backend_error(failed.what());
    } catch (...) {
      return error;
    }
  } catch (...) {
    return std::current_exception();
  }
}

void throw_as_torch(std::chrono::milliseconds timeout) {
  std::rethrow_exception(as_torch(std::current_exception(), timeout));
}

void throw_dist_backend_error(const std::string& text) {
  throw c10::DistBackendError(c10::SourceLocation{"lockstep", "lockstep", 0}, text);
}

}  // namespace lockstep::compat::torch_backend
