#include "lockstep/compat/tensorflow/c_api.h"

#include <dlfcn.h>

namespace lockstep::compat::tensorflow {
namespace {

Api& loaded() {
  static Api made;
  return made;
}

// A library of TensorFlow that is in the process already, or null. Python loads it in a scope of its own, so
// a look-up in the whole process may not see it.
void* library() {
  for (const char* const name :
       {"libtensorflow_framework.so.2", "libtensorflow_framework.so.3", "libtensorflow_cc.so.2"}) {
    if (void* const found = dlopen(name, RTLD_NOW | RTLD_NOLOAD); found != nullptr) return found;
  }
  return RTLD_DEFAULT;
}

template <typename Function> bool find(void* place, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(place, name));
  return function != nullptr;
}

}  // namespace

std::string load() {
  void* const place = library();
  Api& found = loaded();
#define LOCKSTEP_TENSORFLOW_FIND(result, name, parameters) \
  if (!find(place, #name, found.name)) return #name;
  LOCKSTEP_TENSORFLOW_FUNCTIONS(LOCKSTEP_TENSORFLOW_FIND)
#undef LOCKSTEP_TENSORFLOW_FIND
  return {};
}

const Api& api() { return loaded(); }

}  // namespace lockstep::compat::tensorflow
