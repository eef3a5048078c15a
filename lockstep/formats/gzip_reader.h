// GzipReader reads a file from front to back. It unpacks gzip on the way, so that a reader need not
// distinguish "images" and "images.gz".
//
//   GzipReader reader("train-labels-idx1-ubyte.gz");
//   std::vector<std::byte> buffer(4096);
//   while (const std::size_t count = reader.read(buffer)) use(std::span(buffer).first(count));
//
// A file counts as gzip if it starts with the bytes 1f 8b, whatever its name is. Several gzip members in a
// row read as one file, and zeros after the last one are padding, both as with the command gzip. Memory stays
// below 100 KB for any file.
//
// Fails       SystemError if the file cannot be opened or read, or is a pipe or a folder. FormatError that
//             names the file, for a broken or cut gzip stream and for other bytes than zeros after its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

class GzipReader {
 public:
  explicit GzipReader(std::string path);
  ~GzipReader();
  GzipReader(GzipReader&&) noexcept;
  GzipReader& operator=(GzipReader&&) noexcept;

  // Fills `out` and returns its size. Returns less only at the end of the file, and 0 after that.
  std::size_t read(std::span<std::byte> out);

  // The most bytes that the file can hold: its size or, for gzip, 1032 times that (the limit of deflate). A
  // reader compares the size in a header with this before it allocates memory.
  std::uint64_t size_limit() const;
  bool is_gzip() const;

  const std::string& path() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
