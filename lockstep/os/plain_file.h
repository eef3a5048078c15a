// PlainFile: a regular file, open for reading. It refuses a folder, a device and a named pipe with an error
// that names the kind. Opening a named pipe would otherwise wait for a writer.
//
//   const PlainFile file("model.safetensors");
//   std::vector<std::byte> head(std::min<std::uint64_t>(file.size(), 8));
//   file.read_at(0, head);                   // fewer bytes than requested if the file ends there
//
// Threads     any number may read.
// Fails       SystemError that names the path: missing, unreadable, not a regular file.
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
  std::uint64_t size() const;  // its current size
  // Returns the number of bytes read: all of `out`, or less at the end of the file.
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  Fd file_;
};

// Reads the whole file.
std::string read_plain_file(const std::string& path);

}  // namespace lockstep
