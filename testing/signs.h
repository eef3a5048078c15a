// Signs: what ranks of a test tell each other without the library, which sees no call and orders no memory by
// it: files in a folder.
//
//   const Signs signs(world());            // collective
//   if (rank() == 1) signs.give("left");
//   if (rank() == 2) signs.await("left");
//
// The folder goes with rank 0's object: the others are past their last await() by then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/collectives/broadcast.h"
#include "testing/temp_folder.h"

namespace lockstep::testing {

class Signs {
 public:
  explicit Signs(const ProcessGroup& group) {
    std::vector<std::uint8_t> path(1000);
    const std::string mine = folder_.path();
    std::copy(mine.begin(), mine.end(), path.begin());
    comm::broadcast(group, std::span(path), 0);
    path_ = std::string(path.begin(), std::find(path.begin(), path.end(), 0));
  }

  void give(const std::string& name) const { std::ofstream(path_ / name).close(); }
  void await(const std::string& name) const {
    while (!std::filesystem::exists(path_ / name)) std::this_thread::yield();
  }

 private:
  TempFolder folder_;
  std::filesystem::path path_;
};

}  // namespace lockstep::testing
