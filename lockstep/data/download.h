// Downloads the files of a data set that are missing, from the first mirror that has them.
//
//   const std::array files = {DownloadFile{"train-labels-idx1-ubyte", "65a50cbb..."}};
//   if (const auto reason = download("data/mnist", files, {{"https://mirror.example/mnist/"}}))
//     std::puts(reason->c_str());
//
// Each file is fetched as MIRROR + name + ".gz" by the program curl, checked, and moved into place whole;
// other content, a cut file or an error page never arrives under the name. A mirror that does not answer
// costs 3 seconds, one that stalls 5.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace lockstep {

struct DownloadFile {
  std::string name;    // without .gz
  std::string sha256;  // of the unpacked content, in hexadecimal
};

// Makes the folder if needed. nullopt: all files are there (plain or .gz). Otherwise one line that says why
// not; that there is no network is an ordinary outcome. The first file that no mirror has ends the attempt.
std::optional<std::string> download(const std::string& directory, std::span<const DownloadFile> files,
                                    std::span<const std::string> mirrors);

// SHA-256 of a file's content, unpacked if it is gzip, in hexadecimal. Throws as GzipReader.
std::string unpacked_sha256(const std::string& path);

}  // namespace lockstep
