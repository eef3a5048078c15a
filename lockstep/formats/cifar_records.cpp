#include "lockstep/formats/cifar_records.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/gzip_reader.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse_cifar(const GzipReader& reader, const std::string& defect) {
  throw FormatError(str("CIFAR file \"", printable(reader.path()), "\": ", defect));
}

void check_classes(const std::vector<int>& classes) {
  const auto is_wrong = [](int count) { return count < 1 || count > 256; };
  if (classes.empty() || std::any_of(classes.begin(), classes.end(), is_wrong))
    throw InvalidArgument("read_cifar_records: expected one or more numbers of classes, each 1 to 256");
}

}  // namespace

CifarRecords read_cifar_records(const std::string& path, const std::vector<int>& classes,
                                std::int64_t max_records) {
  check_classes(classes);
  GzipReader reader(path);
  CifarRecords records;
  std::vector<std::uint8_t> record(classes.size() + CIFAR_PIXELS);
  while (const std::size_t got = reader.read(std::as_writable_bytes(std::span(record)))) {
    if (got < record.size())
      refuse_cifar(
          reader, str("truncated: record ", records.count, " has ", got, " bytes, expected ", record.size()));
    if (records.count == max_records)
      refuse_cifar(reader, str("more than the ", max_records, " records that are allowed"));
    for (std::size_t i = 0; i < classes.size(); ++i) {
      if (record[i] >= classes[i])
        refuse_cifar(reader, str("label ", static_cast<int>(record[i]), " of record ", records.count,
                                 " is out of range, expected 0 to ", classes[i] - 1,
                                 "; is this another data set, or another version of it?"));
      records.labels.push_back(record[i]);
    }
    const auto pixels = record.begin() + static_cast<std::ptrdiff_t>(classes.size());
    records.pixels.insert(records.pixels.end(), pixels, record.end());
    ++records.count;
  }
  if (records.count == 0) refuse_cifar(reader, "it holds no records");
  return records;
}

}  // namespace lockstep
