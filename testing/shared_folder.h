// A fresh folder that all ranks of a test share; rank 0 makes and removes it.
//
//   const SharedFolder folder(world());
//   save_checkpoint(folder.path(), state);
//
// Collective: construction and destruction.
#pragma once

#include <optional>
#include <string>

#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/collectives/objects.h"
#include "lockstep/comm/process_group.h"
#include "testing/temp_folder.h"

namespace lockstep::testing {

class SharedFolder {
 public:
  explicit SharedFolder(const ProcessGroup& group) : group_(group) {
    if (group.rank() == 0) path_ = own_.emplace().path();
    comm::broadcast_object(group, path_, GroupRank{0});
  }
  ~SharedFolder() {
    try {
      comm::barrier(group_);
    } catch (const std::exception&) {  // a test that has failed already
    }
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  ProcessGroup group_;
  std::optional<TempFolder> own_;
  std::string path_;
};

}  // namespace lockstep::testing
