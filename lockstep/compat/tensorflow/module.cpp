// What the library does when TensorFlow opens it (tf.load_op_library): it tells TensorFlow of the operators.
// TensorFlow makes Python functions of those that appear meanwhile. No error can pass a library's start, so
// Python asks for it afterwards.
#include <exception>
#include <string>

#include "lockstep/compat/tensorflow/c_api.h"
#include "lockstep/compat/tensorflow/named_operators.h"
#include "lockstep/compat/tensorflow/ordered_operators.h"
#include "lockstep/compat/tensorflow/tensors.h"

namespace {

std::string& failure() {
  static std::string text;
  return text;
}

[[gnu::constructor]] void start() noexcept {
  using namespace lockstep::compat::tensorflow;
  try {
    if (const std::string lacking = load(); !lacking.empty()) {
      failure() = "this TensorFlow has no function " + lacking;
      return;
    }
    register_ordered_operators();
    register_named_operators();
  } catch (const Failure& error) {
    failure() = error.text;
  } catch (const std::exception& error) {
    failure() = error.what();
  }
}

}  // namespace

// Null: all operators are known. Else why not.
extern "C" __attribute__((visibility("default"))) const char* lockstep_tensorflow_failure() {
  return failure().empty() ? nullptr : failure().c_str();
}
