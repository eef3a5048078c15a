#include "lockstep/formats/zip_reader.h"

#include <minizip/unzip.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <limits>
#include <memory>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::size_t LONGEST_NAME = 4096;
constexpr std::size_t ZIP_NAME_SHOWN = 100;
constexpr unsigned long ENCRYPTED = 1;  // bit of a record's flags

// The archive as minizip sees it: a file that begins at 0. An exception must not pass through minizip's C
// code, so it is kept here.
struct Window {
  const PlainFile* file;
  std::uint64_t begin;
  std::uint64_t size;
  std::uint64_t position = 0;
  std::exception_ptr failure = nullptr;
};

Window& window_of(void* stream) { return *static_cast<Window*>(stream); }

void* open_window(void* opaque, const void* /*name*/, int /*mode*/) { return opaque; }
int close_window(void* /*opaque*/, void* /*stream*/) { return 0; }
int error_of_window(void* /*opaque*/, void* stream) { return window_of(stream).failure ? 1 : 0; }
ZPOS64_T tell_window(void* /*opaque*/, void* stream) { return window_of(stream).position; }

unsigned long read_window(void* /*opaque*/, void* stream, void* out, unsigned long wanted) {
  Window& window = window_of(stream);
  const std::uint64_t count = std::min<std::uint64_t>(wanted, window.size - window.position);
  try {
    const std::size_t got = window.file->read_at(
        window.begin + window.position, {static_cast<std::byte*>(out), static_cast<std::size_t>(count)});
    window.position += got;
    return got;
  } catch (...) {
    window.failure = std::current_exception();
    return 0;
  }
}

long seek_window(void* /*opaque*/, void* stream, ZPOS64_T offset, int origin) {
  Window& window = window_of(stream);
  std::uint64_t from = 0;
  if (origin == ZLIB_FILEFUNC_SEEK_CUR) from = window.position;
  if (origin == ZLIB_FILEFUNC_SEEK_END) from = window.size;
  std::uint64_t target = 0;
  if (__builtin_add_overflow(from, static_cast<std::uint64_t>(offset), &target) || target > window.size)
    return -1;
  window.position = target;
  return 0;
}

struct CloseZip {
  void operator()(void* zip) const { unzClose(zip); }
};
using Zip = std::unique_ptr<void, CloseZip>;

Zip open_zip(Window& window) {
  zlib_filefunc64_def functions{.zopen64_file = open_window,
                                .zread_file = read_window,
                                .zwrite_file = nullptr,
                                .ztell64_file = tell_window,
                                .zseek64_file = seek_window,
                                .zclose_file = close_window,
                                .zerror_file = error_of_window,
                                .opaque = &window};
  Zip zip(unzOpen2_64("", &functions));
  if (window.failure) std::rethrow_exception(window.failure);
  if (!zip) throw FormatError("it is not a zip archive, or its end is missing");
  return zip;
}

ZipRecord current_record(const Zip& zip, const Window& window) {
  unz_file_info64 info{};
  std::array<char, LONGEST_NAME + 1> name{};
  if (unzGetCurrentFileInfo64(zip.get(), &info, name.data(), name.size(), nullptr, 0, nullptr, 0) != UNZ_OK)
    throw FormatError("its zip directory is broken");
  if (info.size_filename > LONGEST_NAME)
    throw FormatError("a record of its zip directory has too long a name");
  ZipRecord record{.name = std::string(name.data(), info.size_filename),
                   .size = info.compressed_size,
                   .is_compressed = info.compression_method != 0};
  const std::string shown = in_quotes(record.name, ZIP_NAME_SHOWN);
  if ((info.flag & ENCRYPTED) != 0) throw FormatError(str("its record ", shown, " is encrypted"));
  if (!record.is_compressed && info.compressed_size != info.uncompressed_size)
    throw FormatError(str("its record ", shown, " is stored with two sizes, ", info.compressed_size, " and ",
                          info.uncompressed_size));
  int method = 0;
  if (unzOpenCurrentFile2(zip.get(), &method, nullptr, /*raw=*/1) != UNZ_OK)
    throw FormatError(str("the header of its record ", shown, " does not fit its zip directory"));
  const std::uint64_t offset = unzGetCurrentFileZStreamPos64(zip.get());
  unzCloseCurrentFile(zip.get());
  if (offset > window.size || record.size > window.size - offset)
    throw FormatError(str("its record ", shown, " of ", record.size, " bytes at byte ", offset,
                          " ends behind the end of the archive, ", window.size));
  record.offset = window.begin + offset;
  return record;
}

void check_overlaps(std::vector<ZipRecord> records) {
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < records.size(); ++i)
    if (records[i - 1].offset + records[i - 1].size > records[i].offset)
      throw FormatError(str("its records ", in_quotes(records[i - 1].name, ZIP_NAME_SHOWN), " and ",
                            in_quotes(records[i].name, ZIP_NAME_SHOWN), " overlap"));
}

bool before(const ZipRecord& a, const ZipRecord& b) { return a.name < b.name; }

}  // namespace

ZipReader::ZipReader(const PlainFile& file, std::uint64_t begin, std::uint64_t size) {
  Window window{.file = &file, .begin = begin, .size = size};
  const Zip zip = open_zip(window);
  int state = unzGoToFirstFile(zip.get());
  while (state == UNZ_OK) {
    records_.push_back(current_record(zip, window));
    state = unzGoToNextFile(zip.get());
  }
  if (window.failure) std::rethrow_exception(window.failure);
  if (state != UNZ_END_OF_LIST_OF_FILE) throw FormatError("its zip directory is broken");
  check_overlaps(records_);
  std::sort(records_.begin(), records_.end(), before);
  const auto twice = std::adjacent_find(records_.begin(), records_.end(),
                                        [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != records_.end())
    throw FormatError(str("its record ", in_quotes(twice->name, ZIP_NAME_SHOWN), " occurs twice"));
}

void expect_stored(const ZipRecord& record) {
  if (record.is_compressed)
    throw FormatError(str("its record ", in_quotes(record.name, ZIP_NAME_SHOWN),
                          " is compressed; torch.save stores records as they are. Pack it again without "
                          "compression (zip -0)"));
}

const ZipRecord* ZipReader::find(std::string_view name) const {
  const auto found =
      std::lower_bound(records_.begin(), records_.end(), name,
                       [](const ZipRecord& record, std::string_view wanted) { return record.name < wanted; });
  return found == records_.end() || found->name != name ? nullptr : &*found;
}

}  // namespace lockstep
