// The module of Gloo: see gloo/module.h. Built against the system's Gloo, not part of the library.
#include "lockstep/comm/backends/gloo/module.h"

#include <gloo/config.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
#include <memory>

#include "lockstep/comm/backends/gloo/mesh_streams.h"

namespace lockstep::gloo {
namespace {

#define LOCKSTEP_WORD_(x) #x
#define LOCKSTEP_WORD(x) LOCKSTEP_WORD_(x)
constexpr const char* LIBRARY = "Gloo " LOCKSTEP_WORD(GLOO_VERSION_MAJOR) "." LOCKSTEP_WORD(
    GLOO_VERSION_MINOR) "." LOCKSTEP_WORD(GLOO_VERSION_PATCH);

class ThisModule final : public Module {
 public:
  const char* library() const override { return LIBRARY; }

  Streams* open(const Place& place, Text& error) override {
    try {
      const HeldPipeSignal held;  // also on the thread that the device starts
      return new MeshStreams(place, ::gloo::transport::tcp::CreateDevice(place.address));
    } catch (const std::exception& failure) {
      put(break_of(failure).reason, error);
      return nullptr;
    }
  }
};

}  // namespace
}  // namespace lockstep::gloo

extern "C" __attribute__((visibility("default"))) lockstep::gloo::Module* lockstep_gloo_module_2() {
  static auto* const instance = new lockstep::gloo::ThisModule;  // outlives static destructors
  return instance;
}
