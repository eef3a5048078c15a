#include "lockstep/comm/backends/gloo/library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "testing/paths.h"
#include "testing/reference.h"

namespace lockstep::gloo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(GlooLibrary, WithoutAModuleTheErrorSaysWhatToInstall) {
  EXPECT_THAT([] { open_library_at(""); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("backend \"gloo\" needs lockstep_gloo.so"),
                                                   HasSubstr("install libgloo-dev and build"))));
}

TEST(GlooLibrary, AFileThatIsNoModuleIsRefused) {
  if (reference::SANITIZED) {
    EXPECT_THAT([] { open_library_at("libm.so.6"); },
                ThrowsMessage<InvalidArgument>(HasSubstr("use backend \"tcp\" there")));
    return;
  }
  EXPECT_THAT([] { open_library_at("/nowhere/lockstep_gloo.so"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("cannot load /nowhere/lockstep_gloo.so")));
  EXPECT_THAT([] { open_library_at("libm.so.6"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("was built with another version of Lockstep")));
}

// Where the module was built, CMake says so; a build without it has no such test to pass.
#ifdef LOCKSTEP_WITH_GLOO_MODULE
TEST(GlooLibrary, IsFoundAndShowsNoNameToOthers) {
  ASSERT_EQ(find_library(), testing::gloo_module());
  EXPECT_THAT(open_library().library(), StartsWith("Gloo "));
  EXPECT_EQ(&open_library(), &open_library());
  void* const module = dlopen(testing::gloo_module().c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(module, nullptr);
  constexpr const char* OF_GLOO = "_ZN4gloo9transport3tcp12CreateDeviceERKNS1_4attrE";
  EXPECT_NE(dlsym(module, OF_GLOO), nullptr) << "libgloo itself is found through the module";
  EXPECT_EQ(dlsym(RTLD_DEFAULT, OF_GLOO), nullptr) << "and only through it";
  EXPECT_EQ(dlsym(RTLD_DEFAULT, MODULE_ENTRY), nullptr);
  dlclose(module);
}

TEST(GlooLibrary, AnAddressThatIsNotThisMachinesIsAnError) {
  Text error = {};
  EXPECT_EQ(open_library().open({.rank = 0, .size = 2, .address = "203.0.113.7"}, error), nullptr);
  EXPECT_THAT(error.data(), HasSubstr("203.0.113.7"));
}
#else
TEST(GlooLibrary, IsNotHere) { EXPECT_EQ(find_library(), ""); }
#endif

}  // namespace
}  // namespace lockstep::gloo
