// See stand_in_memory.h.
#include "tests/nccl/stand_in_memory.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>

namespace lockstep::nccl::stand_in {
namespace {

constexpr std::size_t PAGE = 4096;
constexpr char NAME[] = "nccl-stand-in";
constexpr std::string_view LINK = "/memfd:nccl-stand-in";

// What a UniqueId holds.
struct Place {
  std::uint64_t mark;
  std::uint64_t number;
  int pid;
  int file;
};
constexpr std::uint64_t MARK = 0x6e692d646e617473;  // "stand-in"

Place place_of(const UniqueId& id) {
  Place place;
  std::memcpy(&place, id.internal, sizeof(place));
  return place;
}

// The files of ids that this process made, by their numbers.
struct OwnFiles {
  std::mutex mutex;
  std::map<std::uint64_t, int> by_number;
};

OwnFiles& own_files() {
  static auto* const instance = new OwnFiles;  // threads of the library may outlive main
  return *instance;
}

void close_own_file(std::uint64_t number) {
  OwnFiles& own = own_files();
  const std::lock_guard lock(own.mutex);
  const auto found = own.by_number.find(number);
  if (found == own.by_number.end()) return;
  close(found->second);
  own.by_number.erase(found);
}

// Of the id's maker, opened once more; -1 if that is not what it was.
int open_file(const Place& place) {
  const std::string path = "/proc/" + std::to_string(place.pid) + "/fd/" + std::to_string(place.file);
  std::array<char, 64> target{};
  const ssize_t length = readlink(path.c_str(), target.data(), target.size());
  if (length < 0 || !std::string_view(target.data(), static_cast<std::size_t>(length)).starts_with(LINK))
    return -1;
  return open(path.c_str(), O_RDWR | O_CLOEXEC);
}

void* map(int file, std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

}  // namespace

struct SharedMemory::Meeting {
  std::atomic<std::uint64_t> number;
  std::atomic<int> size;
  std::atomic<int> there;
  std::atomic<bool> contradiction;
  std::atomic<bool> is_there[MOST_RANKS];
};

void Pause::operator()() {
  if (++looks_ < 50) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

std::size_t Channel::write(const char* data, std::size_t most) {
  const std::uint64_t written = written_.load(std::memory_order_relaxed);
  const std::uint64_t taken = taken_.load(std::memory_order_acquire);
  const std::size_t place = written % CAPACITY;
  const std::size_t bytes = std::min({most, CAPACITY - (written - taken), CAPACITY - place});
  if (bytes == 0) return 0;
  std::memcpy(bytes_ + place, data, bytes);
  written_.store(written + bytes, std::memory_order_release);
  return bytes;
}

std::size_t Channel::read(char* data, std::size_t most) {
  const std::uint64_t taken = taken_.load(std::memory_order_relaxed);
  const std::uint64_t written = written_.load(std::memory_order_acquire);
  const std::size_t place = taken % CAPACITY;
  const std::size_t bytes = std::min({most, static_cast<std::size_t>(written - taken), CAPACITY - place});
  if (bytes == 0) return 0;
  std::memcpy(data, bytes_ + place, bytes);
  taken_.store(taken + bytes, std::memory_order_release);
  return bytes;
}

Result make_unique_id(UniqueId* id) {
  Place place{MARK, 0, getpid(), memfd_create(NAME, MFD_CLOEXEC)};
  if (place.file < 0) return SYSTEM_ERROR;
  if (getrandom(&place.number, sizeof(place.number), 0) != sizeof(place.number) ||
      pwrite(place.file, &place.number, sizeof(place.number), 0) != sizeof(place.number) ||
      ftruncate(place.file, PAGE) != 0) {
    close(place.file);
    return SYSTEM_ERROR;
  }
  {
    const std::lock_guard lock(own_files().mutex);
    own_files().by_number.emplace(place.number, place.file);
  }
  *id = {};
  std::memcpy(id->internal, &place, sizeof(place));
  return SUCCESS;
}

SharedMemory::SharedMemory(const UniqueId& id, int rank, int size)
    : size_(size), number_(place_of(id).number) {
  static_assert(sizeof(Meeting) <= PAGE && PAGE % alignof(Channel) == 0);
  if (place_of(id).mark != MARK)
    throw Problem{INVALID_ARGUMENT, "the unique id is not one of ncclGetUniqueId"};
  try {
    open_meeting(id);
    check_in(rank);
  } catch (const Problem&) {
    if (meeting_ != nullptr) munmap(meeting_, bytes_);
    if (file_ >= 0) close(file_);
    throw;
  }
  close(file_);
}

SharedMemory::~SharedMemory() {
  close_own_file(number_);
  munmap(meeting_, bytes_);
}

void SharedMemory::open_meeting(const UniqueId& id) {
  file_ = open_file(place_of(id));
  if (file_ < 0)
    throw Problem{REMOTE_ERROR,
                  "the process that made the unique id is gone, or its communicator is complete"};
  bytes_ = PAGE;
  meeting_ = static_cast<Meeting*>(map(file_, bytes_));
  if (meeting_ == nullptr) throw Problem{SYSTEM_ERROR, "mmap: " + std::string(std::strerror(errno))};
  if (meeting_->number != number_) throw Problem{REMOTE_ERROR, "the unique id is of an older communicator"};
}

void SharedMemory::check_in(int rank) {
  int first = 0;
  if (!meeting_->size.compare_exchange_strong(first, size_) && first != size_) {
    meeting_->contradiction = true;
    throw Problem{INVALID_USAGE, "rank " + std::to_string(rank) + " says that there are " +
                                     std::to_string(size_) + " ranks, another one says " +
                                     std::to_string(first)};
  }
  if (meeting_->is_there[rank].exchange(true)) {
    meeting_->contradiction = true;
    throw Problem{INVALID_USAGE, "rank " + std::to_string(rank) + " has come twice"};
  }
  const std::size_t all =
      PAGE + sizeof(Channel) * static_cast<std::size_t>(size_) * static_cast<std::size_t>(size_);
  void* const memory = ftruncate(file_, static_cast<off_t>(all)) == 0 ? map(file_, all) : nullptr;
  if (memory == nullptr)
    throw Problem{SYSTEM_ERROR, "memory of the ranks: " + std::string(std::strerror(errno))};
  munmap(meeting_, bytes_);
  bytes_ = all;
  meeting_ = static_cast<Meeting*>(memory);
  channels_ = reinterpret_cast<Channel*>(static_cast<char*>(memory) + PAGE);
  ++meeting_->there;
}

bool SharedMemory::is_complete() {
  const bool all = meeting_->there == size_;
  if (all) close_own_file(number_);
  if (!all && meeting_->contradiction) {
    throw Problem{INVALID_USAGE, "ranks contradict each other about which and how many they are"};
  }
  return all;
}

}  // namespace lockstep::nccl::stand_in
