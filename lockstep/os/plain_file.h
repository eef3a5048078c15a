// PlainFile: a regular file, open for reading. It refuses by name a folder, a device, and a named pipe,
// which would wait for a writer.
//
//   const PlainFile file("model.safetensors");
//   std::vector<std::byte> head(std::min<std::uint64_t>(file.size(), 8));
//   file.read_at(0, head);                   // fewer bytes than asked for: the file ends there
//
// Threads     any number may read.
// Fails       SystemError naming the path: missing, unreadable, no plain file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"

namespace LOCKSTEP_PUBLIC lockstep {

class PlainFile {
 public:
  explicit PlainFile(std::string path);

  const std::string& path() const { return path_; }
  int descriptor() const { return file_.get(); }
  std::uint64_t size() const;  // now
  // Bytes read: as many as asked for, or up to the end of the file.
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  Fd file_;
};

// All of it.
std::string read_plain_file(const std::string& path);

}  // namespace lockstep
