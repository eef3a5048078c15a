// A program and two plug-ins that all link liblockstep_core.so are in one job: the program joins and leaves,
// a plug-in in C++ and one in C add up. An error that the library throws in the plug-in's call is caught by
// its type in the program.
#include <dlfcn.h>
#include <lockstep/base/error.h>
#include <lockstep/job/job.h>
#include <lockstep/job/spawn.h>

#include <cstdio>
#include <stdexcept>
#include <string>

namespace {

template <typename Function> Function* of_plugin(const char* name, const char* file = PLUGIN) {
  void* const plugin = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  void* const found = plugin != nullptr ? dlsym(plugin, name) : nullptr;
  if (found == nullptr) throw std::runtime_error(dlerror());
  return reinterpret_cast<Function*>(found);
}

void rank() {
  lockstep::init_process_group();
  const int size = lockstep::world().size();
  const int sum = of_plugin<int(int)>("plugin_sum")(lockstep::world().rank() + 1);
  if (sum != size * (size + 1) / 2) throw std::runtime_error("the plug-in's sum is " + std::to_string(sum));
  if (of_plugin<int(int)>("c_plugin_sum", C_PLUGIN)(lockstep::world().rank() + 1) != sum)
    throw std::runtime_error("the plug-in in C has another sum");
  const std::string refused = of_plugin<const char*()>("c_plugin_fails", C_PLUGIN)();
  if (refused.find("rank 99") == std::string::npos && refused.find("root 99") == std::string::npos)
    throw std::runtime_error("the plug-in in C was told: " + refused);
  try {
    of_plugin<void()>("plugin_fails")();
    throw std::runtime_error("the plug-in's mistake was not noticed");
  } catch (const lockstep::InvalidArgument& error) {
    std::printf("%s\n", error.what());
  }
  lockstep::destroy_process_group();
}

}  // namespace

int main() {
  for (const int ranks : {1, 2, 3, 4}) lockstep::spawn(ranks, [](int) { rank(); });
}
