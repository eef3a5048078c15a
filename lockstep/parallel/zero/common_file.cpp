#include "lockstep/parallel/zero/common_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/barrier.h"
#include "lockstep/comm/collectives/broadcast.h"
#include "lockstep/os/fd.h"
#include "lockstep/os/file_size_limit.h"

namespace lockstep::zero {
namespace {

constexpr std::string_view PLACE_OF_ENDING = "XXXXXX";
using Ending = std::array<char, PLACE_OF_ENDING.size()>;  // of the file's name

// A name that is gone when this object goes.
class NamedFile {
 public:
  explicit NamedFile(const std::string& folder)
      : path_(str(folder, "/.lockstep-parameters-", PLACE_OF_ENDING)) {}
  NamedFile(const NamedFile&) = delete;
  NamedFile& operator=(const NamedFile&) = delete;
  ~NamedFile() {
    if (is_mine_) ::unlink(path_.c_str());
  }

  Ending create(std::size_t bytes) {
    file_.reset(::mkostemp(path_.data(), O_CLOEXEC));
    if (!file_.valid()) throw SystemError(str("cannot make ", in_quotes(path_)), errno);
    is_mine_ = true;
    const NoFileSizeSignal quiet;
    const int failed = ::posix_fallocate(file_.get(), 0, static_cast<off_t>(bytes));
    if (failed != 0) throw SystemError(str("cannot reserve ", bytes, " bytes in ", in_quotes(path_)), failed);
    Ending ending{};
    std::copy(path_.end() - static_cast<std::ptrdiff_t>(ending.size()), path_.end(), ending.begin());
    return ending;
  }
  void open(const Ending& ending) {
    std::copy(ending.begin(), ending.end(), path_.end() - static_cast<std::ptrdiff_t>(ending.size()));
    file_.reset(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
    if (!file_.valid())
      throw SystemError(str("cannot open ", in_quotes(path_), ", which rank 0 has made"), errno);
  }
  std::shared_ptr<void> map(std::size_t bytes) const {
    void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    if (data == MAP_FAILED)
      throw SystemError(str("cannot map ", bytes, " bytes of ", in_quotes(path_)), errno);
    return {data, [bytes](void* mapped) { ::munmap(mapped, bytes); }};
  }

 private:
  std::string path_;
  Fd file_;
  bool is_mine_ = false;
};

}  // namespace

std::shared_ptr<void> common_file(const ProcessGroup& group, const std::string& folder, std::size_t bytes) {
  NamedFile file(folder);
  Ending ending{};
  if (group.rank() == 0) ending = file.create(bytes);
  comm::broadcast(group, ending.data(), ending.size(), DType::UINT8, GroupRank{0}).wait();
  if (group.rank() != 0) file.open(ending);
  std::shared_ptr<void> memory = file.map(bytes);
  comm::barrier(group).wait();  // all have opened it: the name may go
  return memory;
}

}  // namespace lockstep::zero
