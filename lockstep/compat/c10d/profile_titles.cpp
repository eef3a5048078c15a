#include "lockstep/compat/c10d/profile_titles.h"

#include <map>
#include <mutex>
#include <utility>

namespace lockstep::compat::torch_backend {

const char* profile_title(const std::string& backend, const char* verb) {
  struct Titles {
    std::mutex mutex;
    std::map<std::pair<std::string, const char*>, std::string> texts;
  };
  static auto* const titles = new Titles;  // a profile may end after main
  const std::lock_guard lock(titles->mutex);
  std::string& text = titles->texts[{backend, verb}];
  if (text.empty()) text = backend + ":" + verb;
  return text.c_str();
}

}  // namespace lockstep::compat::torch_backend
