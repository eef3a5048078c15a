// Backend gloo in a process with libtorch, which brings a Gloo of another version and shows its names to
// everybody.
#include <ATen/ATen.h>
#include <dlfcn.h>

#include "lockstep/tensor/collectives.h"
#include "testing/paths.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// The file that a function of Gloo would come from, for a caller that sees what `handle` stands for.
std::string file_of_gloo(void* handle) {
  void* const function = dlsym(handle, "_ZN4gloo9transport3tcp12CreateDeviceERKNS1_4attrE");
  Dl_info info = {};
  return function != nullptr && dladdr(function, &info) != 0 ? info.dli_fname : "";
}

RANKS_TEST(GlooBesideLibtorch, HasNothingOfIts, Ranks(2, 3), Backends("gloo")) {
  const std::string of_libtorch = file_of_gloo(RTLD_DEFAULT);
  EXPECT_THAT(of_libtorch, HasSubstr("libtorch")) << "libtorch has no Gloo that could be in the way";
#ifdef LOCKSTEP_WITH_GLOO_MODULE
  void* const module = dlopen(testing::gloo_module().c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(module, nullptr);
  EXPECT_THAT(file_of_gloo(module), HasSubstr("libgloo"));
  dlclose(module);
#endif
  for (const long count : {1L, 1000L, 1000000L}) {
    const at::Tensor sum = at::full({count}, rank() + 1, at::kBFloat16);
    all_reduce(sum);
    EXPECT_TRUE(sum.equal(at::full({count}, size() * (size() + 1) / 2, at::kBFloat16)));
  }
  EXPECT_EQ(file_of_gloo(RTLD_DEFAULT), of_libtorch);
}

}  // namespace
}  // namespace lockstep
