#include "lockstep/parallel/zero/common_file.h"

#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/collectives/broadcast.h"
#include "lockstep/os/passed_file.h"

namespace lockstep::zero {

std::shared_ptr<void> common_file(const ProcessGroup& group, const std::string& folder, std::size_t bytes) {
  PassedFile file(folder);
  PassedFile::Ending ending{};
  if (group.rank() == 0) ending = file.create(bytes);
  comm::broadcast(group, ending.data(), ending.size(), DType::UINT8, GroupRank{0}).wait();
  if (group.rank() != 0) file.open(ending);
  std::shared_ptr<void> memory = file.map(bytes);
  comm::barrier(group).wait();  // all have opened it: the name may go
  return memory;
}

}  // namespace lockstep::zero
