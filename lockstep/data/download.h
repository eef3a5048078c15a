// Downloads the missing files of a data set from the first mirror that has them.
//
//   const std::array files = {DownloadFile{"train-labels-idx1-ubyte", "65a50cbb..."}};
//   if (const auto reason = download("data/mnist", files, {{"https://mirror.example/mnist/"}}))
//     std::puts(reason->c_str());
//
// The program curl fetches each file as MIRROR + name + ".gz". The file is checked and then moved into place
// whole. Other content, a cut file or an error page never gets the name. A mirror that does not answer costs
// 3 seconds, one that stalls 5.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace lockstep {

struct DownloadFile {
  std::string name;    // without .gz
  std::string sha256;  // of the unpacked content, in hexadecimal
};

// Makes the folder if needed. Returns nothing if all files are there (plain or .gz), else one line that says
// why not. A missing network is an ordinary outcome. The attempt ends at the first file that no mirror has.
std::optional<std::string> download(const std::string& directory, std::span<const DownloadFile> files,
                                    std::span<const std::string> mirrors);

// SHA-256 of a file's content, unpacked if it is gzip, in hexadecimal. Throws as GzipReader.
std::string unpacked_sha256(const std::string& path);

}  // namespace lockstep
